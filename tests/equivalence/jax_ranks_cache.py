"""Whether both ranks of JAX on a CPU find in the compilation cache what those of an earlier repeat compiled.

Run in JAX's interpreter: ``… jax_ranks_cache FOLDER``. Two ranks train NCF twice, in new processes each time.
Prints, as JSON, by time and rank: how often the cache had a program, and the losses.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from jax import monitoring

from suite.contract import Job
from tests.equivalence.case import Case
from tests.equivalence.world import case_of, in_processes, job_of, run_rank, unchanged

HIT = "/jax/compilation_cache/cache_hits"
RANKS = 2


def train(case: Case, job: Job, file: Path) -> None:
    """The steps of one rank; ``file`` gets the losses, and one beside it the number of hits."""
    events: list[str] = []
    monitoring.register_event_listener(lambda name, **_: events.append(name))
    run_rank(case, job, unchanged, file)
    file.with_suffix(".hits").write_text(str(events.count(HIT)))


def main(folder: Path) -> None:
    """See the module."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    case, found = case_of("ncf"), {}
    for time in ("first", "second"):
        here = folder / time
        here.mkdir(parents=True)
        files = [here / f"{rank}.npz" for rank in range(RANKS)]
        jobs = [job_of("jax", case, RANKS, rank, here) for rank in range(RANKS)]
        in_processes(*((train, (case, job, file)) for job, file in zip(jobs, files, strict=True)))
        found[time] = [
            [int(file.with_suffix(".hits").read_text()), np.load(file)["losses"].tolist()] for file in files
        ]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
