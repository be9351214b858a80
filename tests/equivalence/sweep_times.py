"""A sum of the sweep does not last longer because another rank is still checking the one before.

``python -m tests.equivalence.sweep_times`` sums on two ranks of JAX, of which rank 1 takes ``CHECK_S`` longer
for each check, and prints the shortest time of rank 0 in seconds. JAX alone checks on the host: for a large
sum this takes longer than the sum.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.equivalence.case import load
from tests.equivalence.world import build, hooks_of, job_of, shard

if TYPE_CHECKING:
    from suite.contract import Job

CHECK_S = 0.2
SUMS = 3


def run(job: Job, found: Connection) -> None:
    """Time sums of four values; rank 0 sends its times."""
    exchange = build(job, shard(load("ncf"), job)).framework.exchange
    local = exchange.local

    def slowly(tree: Any) -> Any:
        time.sleep(CHECK_S)
        return local(tree)

    with mock.patch.object(exchange, "local", slowly if job.rank == 1 else local):
        times, exact = exchange.time_sums(4, SUMS)
    if job.rank == 0:
        found.send((times, exact))
    hooks_of("jax").leave()


def main() -> None:
    """See the module."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [job_of("jax", load("ncf"), 2, rank, Path(folder)) for rank in range(2)]
        ranks = [context.Process(target=run, args=(job, writing), daemon=True) for job in jobs]
        for rank in ranks:
            rank.start()
        if not reading.poll(60):
            raise SystemExit("expected the times of rank 0 within 60 s, found none")
        times, exact = reading.recv()
        for rank in ranks:
            rank.join(10)
    assert exact
    print(min(times) / 1e9)


if __name__ == "__main__":
    main()
