"""Two ranks on two GPUs compute what one process on the CPU computes over both shards, with each collective.

``python -m tests.equivalence.gpu_exchange [CASE…]``: ten steps of each case in float64 with PyTorch, compiled
and captured as in a run, exchanged by NCCL and by copy engines. Prints one JSON line for each: the largest
differences, relative to the largest magnitude of the tensor, and whether the ranks' weights are equal bit
for bit. Exits with 1 if they are not, or a difference is above 1e-8.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from suite import workloads
from suite.contract.traits import traits_of
from tests.equivalence.world import (
    UNCLIPPED,
    case_of,
    compare,
    in_processes,
    job_of,
    run_one,
    run_rank,
    unchanged,
)

CASES = ("gnmt", "ncf", "word2vec", "resnet50_cifar10", "resnet50_cifar10" + UNCLIPPED)
BOUND = 1e-8  # that of the fast paths on a GPU
RANKS = 2


def main(names: list[str]) -> int:
    """See the module."""
    met = True
    for name in names or CASES:
        case = case_of(name)
        job = case.job("pytorch", "fp64")
        workloads.pair_module(job), workloads.framework_module(job)  # imported before the forks
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root)
            in_processes((run_one, ("pytorch", case, RANKS, folder)))
            for collective in traits_of("pytorch").collectives["cuda"]:
                calls = []
                for rank in range(RANKS):
                    job = job_of("pytorch", case, RANKS, rank, folder)
                    job = replace(
                        job, device=f"cuda:{rank}", local_rank=rank, collective=collective, fast=True
                    )
                    calls.append((run_rank, (case, job, unchanged, folder / f"{collective}-{rank}.npz")))
                in_processes(*calls)
                (folder / "ranks").unlink()  # where the ranks met
                found = compare(folder, collective, RANKS)
                print(json.dumps({"case": name, "collective": collective, **found}), flush=True)
                met &= bool(found["equal"]) and max(found["differences"].values()) <= BOUND
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
