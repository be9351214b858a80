"""CPU time and storage reads of this process and its descendants: loaders decode in separate processes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from time import clock_gettime_ns, process_time_ns

_SCHED_CLOCK = 2  # CPUCLOCK_SCHED: the CPU time of all threads of a process, in ns


def descendants(process: int | str = "self") -> Iterator[int]:
    """Process ids of the living descendants of ``process``."""
    for task in _tasks(process):
        try:
            children = [int(text) for text in (task / "children").read_text().split()]
        except OSError:  # the thread ended, or the kernel has no such list
            continue
        for child in children:
            yield child
            yield from descendants(child)


def _tasks(process: int | str) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []


def cpu_time_ns() -> int:
    """CPU time of this process, its living descendants, and the children that it has waited for, in ns."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = process_time_ns() + round((ended.ru_utime + ended.ru_stime) * 1e9)
    for child in descendants():
        try:
            total += clock_gettime_ns((~child << 3) | _SCHED_CLOCK)  # clock_getcpuclockid(3)
        except OSError:  # the process ended
            continue
    return total


def read_bytes() -> int | None:
    """Bytes read from storage by this process and its descendants; None if the kernel does not count."""
    total = _read_bytes("self")
    if total is None:
        return None
    return total + sum(_read_bytes(child) or 0 for child in descendants())


def _read_bytes(process: int | str) -> int | None:
    """Bytes read for one process and the children that it has waited for."""
    try:
        text = Path(f"/proc/{process}/io").read_text()
    except OSError:
        return None
    return int(text.split("read_bytes:")[1].split()[0])
