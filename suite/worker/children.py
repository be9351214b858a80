"""What this process and those that it started have used: loaders decode in processes of their own."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from time import clock_gettime_ns, process_time_ns

_SCHED_CLOCK = 2  # CPUCLOCK_SCHED: the CPU time of all threads of a process, in ns


def living() -> list[int]:
    """Process ids of this process's descendants."""
    return list(_below("self"))


def _below(process: int | str) -> Iterator[int]:
    for task in _tasks(process):
        try:
            children = [int(word) for word in (task / "children").read_text().split()]
        except OSError:  # the thread ended, or the kernel keeps no such lists
            continue
        for child in children:
            yield child
            yield from _below(child)


def _tasks(process: int | str) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []


def cpu_time_ns() -> int:
    """CPU time of this process, of its living descendants, and of those that it has waited for, in ns."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = process_time_ns() + round((ended.ru_utime + ended.ru_stime) * 1e9)
    for child in living():
        try:
            total += clock_gettime_ns((~child << 3) | _SCHED_CLOCK)  # clock_getcpuclockid(3)
        except OSError:  # it has ended
            continue
    return total


def read_bytes() -> int | None:
    """Bytes that were fetched from storage for all of them; None where the kernel does not say."""
    own = _read_bytes("self")
    if own is None:
        return None
    return own + sum(_read_bytes(child) or 0 for child in living())


def _read_bytes(process: int | str) -> int | None:
    """Of one process, and of those that it has waited for."""
    try:
        text = Path(f"/proc/{process}/io").read_text()
    except OSError:
        return None
    return int(text.split("read_bytes:")[1].split()[0])
