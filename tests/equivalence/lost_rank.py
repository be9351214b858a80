"""A rank whose peer ends or stops inside an exchange raises LostRank: prints how rank 0 ended, by signal.

``python -m tests.equivalence.lost_rank FRAMEWORK SIGNAL...`` runs NCF on two ranks; rank 1 sends itself the
signal.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from suite.contract import LostRank
from tests.equivalence.case import load
from tests.equivalence.world import build, job_of, shard

if TYPE_CHECKING:
    from suite.contract import Job

WAIT_S = 2
ENDED, LOST = 0, 5


def run(job: Job, number: int) -> None:
    """Run steps until the other rank is lost; rank 1 sends itself the signal ``number`` in step 3."""
    pair = build(job, shard(load("ncf"), job))
    pair.reset()  # from here on a rank waits for WAIT_S
    try:
        for step in range(1000):
            if step == 3 and job.rank == 1:
                os.kill(os.getpid(), number)
            pair.step(step)
    except LostRank:
        os._exit(LOST)
    os._exit(ENDED)


def main(framework: str, *signals: str) -> None:
    """See the module."""
    if framework == "pytorch":
        from suite.frameworks.pytorch import exchange

        exchange._STEPS = timedelta(seconds=WAIT_S)
    context = multiprocessing.get_context("fork")
    for number in (signal.Signals[name] for name in signals):
        with tempfile.TemporaryDirectory() as folder:
            jobs = [job_of(framework, load("ncf"), 2, rank, Path(folder)) for rank in range(2)]
            ranks = [context.Process(target=run, args=(job, number)) for job in jobs]
            started = time.monotonic()
            for rank in ranks:
                rank.start()
            ranks[0].join(60)
            end = {ENDED: "ended", LOST: "LostRank", None: "waits"}.get(ranks[0].exitcode, "crashed")
            print(f"{number.name}: {end}, {time.monotonic() - started:.1f} s")
            for rank in ranks:
                rank.kill()
                rank.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
