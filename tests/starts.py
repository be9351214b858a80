"""The cost of a command in starts of a bare interpreter: seconds depend more on the machine and its load."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def bare_starts(*arguments: str, rounds: int = 5) -> float:
    """Processor time of ``python *arguments`` by that of ``python -c pass``: the least of each, interleaved.

    Byte code is kept, as by default: the first start compiles, and the least is what a user waits for.
    A busy machine doubles the ratio (a check: 14 starts alone, 24 beside other tests): leave bounds room.
    """
    ours, bare = [], []
    for _ in range(rounds):
        bare.append(_processor_time("-c", "pass"))
        ours.append(_processor_time(*arguments))
    return min(ours) / min(bare)


def _processor_time(*arguments: str) -> float:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
