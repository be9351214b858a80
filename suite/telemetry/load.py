"""The load by other processes, measured before each repeat."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from suite.telemetry.process import cpu_time_ns, descends
from suite.telemetry.reading import Unavailable

OBSERVATION_SECONDS = 0.2
BUSY_SHARE = 0.2  # of one core


def machine_load() -> dict[str, Any]:
    """Load average of one minute (decimal string) and the number of other processes above 20 % of a core.

    Blocks for OBSERVATION_SECONDS. Counts every process of this pid namespace except this one and its
    descendants; threads of one process count once.
    """
    before = _cpu_times()
    began = time.monotonic_ns()
    time.sleep(OBSERVATION_SECONDS)
    elapsed = time.monotonic_ns() - began
    after = _cpu_times()
    busy = [pid for pid, used in after.items() if used - before.get(pid, 0) > BUSY_SHARE * elapsed]
    return {
        "one_minute": f"{os.getloadavg()[0]:.2f}",
        # A process that began during the observation counts with all its CPU time.
        "other_processes": sum(not _ours(pid) for pid in busy),
    }


def _cpu_times() -> dict[int, int]:
    """CPU time in ns of every visible process."""
    times: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                times[int(folder.name)] = cpu_time_ns(int(folder.name))
            except OSError:  # it has ended
                continue
    return times


def _ours(pid: int) -> bool:
    try:
        return descends(pid, os.getpid())
    except Unavailable:  # it has ended, so it is no child of this process: those are reaped by it
        return False
