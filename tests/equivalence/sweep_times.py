"""The time of a sum in the sweep of JAX, while the other rank takes long to check the sum before.

``python -m tests.equivalence.sweep_times`` sums on two ranks, of which rank 1 takes ``CHECK_S`` longer for
each check, and prints the shortest time of rank 0 in seconds. JAX checks on the host, which takes longer than
a large sum; the time must not contain that.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.equivalence.case import load
from tests.equivalence.world import build, hooks_of, in_processes, job_of, shard

if TYPE_CHECKING:
    from suite.contract import Job

CHECK_S = 0.2
SUMS = 3


def run(job: Job, file: Path) -> None:
    """Time sums of four values; rank 0 writes its shortest time to ``file``."""
    exchange = build(job, shard(load("ncf"), job)).framework.exchange
    local = exchange.local

    def slowly(tree: Any) -> Any:
        time.sleep(CHECK_S)
        return local(tree)

    with mock.patch.object(exchange, "local", slowly if job.rank == 1 else local):
        times, exact = exchange.time_sums(4, SUMS)
    assert exact
    if job.rank == 0:
        file.write_text(str(min(times) / 1e9))
    hooks_of("jax").leave()


def main() -> None:
    """See the module."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        file = folder / "seconds"
        in_processes(*((run, (job_of("jax", load("ncf"), 2, rank, folder), file)) for rank in range(2)))
        print(file.read_text())


if __name__ == "__main__":
    main()
