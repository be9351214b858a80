"""What else keeps the machine busy: looked at before each repeat, outside the window."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from suite.telemetry.process import cpu_time_ns, descends
from suite.telemetry.reading import Unavailable

LOOK_SECONDS = 0.2
BUSY_SHARE = 0.2  # of one core


def machine_load(look: float = LOOK_SECONDS) -> dict[str, Any]:
    """Load average of one minute (decimal string) and how many other processes use over 20 % of a core.

    Blocks for ``look`` seconds. Counts every process that can be seen from here, except this one and those
    it started; threads of one process count once.
    """
    before = _cpu_times()
    began = time.monotonic_ns()
    time.sleep(look)
    elapsed = time.monotonic_ns() - began
    after = _cpu_times()
    busy = [pid for pid, used in after.items() if used - before.get(pid, 0) > BUSY_SHARE * elapsed]
    return {
        "one_minute": f"{os.getloadavg()[0]:.2f}",
        # A process that began during the look is judged by all it used since.
        "other_processes": sum(not _ours(pid) for pid in busy),
    }


def _cpu_times() -> dict[int, int]:
    """CPU time in ns of every visible process."""
    times: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                times[int(folder.name)] = cpu_time_ns(int(folder.name))
            except OSError:  # it ended meanwhile
                continue
    return times


def _ours(pid: int) -> bool:
    try:
        return descends(pid, os.getpid())
    except Unavailable:  # it ended after the look: it was not started by us, or we would have reaped it
        return False
