"""One worker process as the kernel accounts for it: two small reads and a clock, no scan."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from suite.telemetry.reading import Collector, Unavailable, describe

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SCHED_CLOCK = 2  # CPUCLOCK_SCHED: the CPU time of all threads of a process, in ns


def cpu_time_ns(pid: int) -> int:
    """CPU time of all threads of ``pid``, user and system, in ns (the clock of clock_getcpuclockid(3)).

    Raises OSError where there is no such process.
    """
    return time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK)


def stat_fields(pid: int, root: Path = Path("/")) -> list[str]:
    """The fields of /proc/<pid>/stat from the third (the state) on; the name before may hold blanks."""
    return (root / "proc" / str(pid) / "stat").read_text().rpartition(")")[2].split()


def descends(pid: int, ancestor: int, root: Path = Path("/")) -> bool:
    """Whether ``pid`` is ``ancestor`` or was started below it.

    Raises Unavailable where ``pid`` cannot be seen: it ended, or it is a number of another pid namespace.
    """
    try:
        current = pid
        while current not in (ancestor, 0):
            current = int(stat_fields(current, root)[1])
    except OSError:
        raise Unavailable("a process on the device cannot be seen from this pid namespace") from None
    return current == ancestor


class Process:
    """A process followed over time; a reused pid is told apart by its start time."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._started: str | None = None

    def usage(self) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """The ``worker`` object of a telemetry event, or None, and reasons (``""``: of the whole object)."""
        try:
            fields = stat_fields(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return None, {"": "the worker has ended"}
        except OSError as problem:
            return None, {"": describe(problem)}
        state, threads, started, pages = fields[0], fields[17], fields[19], fields[21]
        self._started = self._started or started
        if state in "ZX" or started != self._started:
            return None, {"": "the worker has ended"}
        take = Collector()
        data = {
            "cpu_time_ns": take.take("cpu_time_ns", lambda: cpu_time_ns(self.pid)),
            "rss_bytes": int(pages) * _PAGE,
            "read_bytes": take.take("read_bytes", self._read_bytes),
            "threads": int(threads),
        }
        return data, take.reasons

    def _read_bytes(self) -> int:
        """Bytes fetched from storage for this process (the page cache missed)."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "read_bytes":
                return int(value)
        raise Unavailable("the kernel does not account for input and output by process")
