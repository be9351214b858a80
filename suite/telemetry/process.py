"""CPU time, memory and reads of a worker and its descendants, from /proc and a clock per process."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from suite.telemetry.reading import Collector, Unavailable, describe

_PAGE = os.sysconf("SC_PAGE_SIZE")
_COUNTERS = ("cpu_time_ns", "read_bytes")  # values that only grow
_ENDED = "the worker has ended"
_SCHED_CLOCK = 2  # CPUCLOCK_SCHED: the CPU time of all threads of a process, in ns


def cpu_time_ns(pid: int) -> int:
    """CPU time of all threads of ``pid``, user and system, in ns (the clock of clock_getcpuclockid(3)).

    Raises OSError if there is no such process.
    """
    return time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK)


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third (the state) on; the name before it may contain blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descends(pid: int, ancestor: int) -> bool:
    """Whether ``pid`` is ``ancestor`` or one of its descendants.

    Raises Unavailable if ``pid`` has ended, or belongs to another pid namespace.
    """
    try:
        current = pid
        while current not in (ancestor, 0):
            current = int(stat_fields(current)[1])
    except OSError:
        raise Unavailable("a process on the device cannot be seen from this pid namespace") from None
    return current == ancestor


def process_tree(pid: int) -> list[int]:
    """``pid`` and all its descendants."""
    found = [pid]
    for process in found:  # the list grows during the loop
        with contextlib.suppress(OSError):  # the process has ended
            for task in os.scandir(f"/proc/{process}/task"):
                with contextlib.suppress(OSError):  # the thread has ended, or the kernel has no such file
                    found += map(int, Path(task.path, "children").read_text().split())
    return found


class ProcessUsage:
    """The usage of a process over time; a reused pid is detected by its start time."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._started: str | None = None

    def usage(self) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """Processor time, memory, reads and threads, by the names of the log, or None; reasons of nulls."""
        try:
            fields = stat_fields(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return None, {"": _ENDED}
        except OSError as problem:
            return None, {"": describe(problem)}
        state, threads, started, pages = fields[0], fields[17], fields[19], fields[21]
        self._started = self._started or started
        if state in "ZX" or started != self._started:
            return None, {"": _ENDED}
        take = Collector()
        data = {
            "cpu_time_ns": take.take("cpu_time_ns", lambda: cpu_time_ns(self.pid)),
            "rss_bytes": int(pages) * _PAGE,
            "anonymous_bytes": take.take("anonymous_bytes", self._anonymous_bytes),
            "read_bytes": take.take("read_bytes", self._read_bytes),
            "threads": int(threads),
        }
        return data, take.reasons

    def _anonymous_bytes(self) -> int:
        """Resident memory that belongs to no file: what the process has allocated and touched.

        From ``status``, which has counters: ``smaps_rollup`` walks the page tables and holds up the process.
        """
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "RssAnon":
                return int(value.split()[0]) << 10
        raise Unavailable("the kernel does not count anonymous memory by process")

    def _read_bytes(self) -> int:
        """Bytes that this process read from storage (misses of the page cache)."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "read_bytes":
                return int(value)
        raise Unavailable("the kernel does not account for input and output by process")


class ProcessTree:
    """The usage of a worker and all its descendants (its ranks, their loaders) over time.

    The last counters of an ended process stay in the sums, so that the sums never decrease.
    """

    def __init__(self, pid: int) -> None:
        self._first = ProcessUsage(pid)
        self._others: dict[int, ProcessUsage] = {}
        self._ended: dict[str, int] = dict.fromkeys(_COUNTERS, 0)
        self._last: dict[int, dict[str, Any]] = {}

    def usage(self) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """The ``processes`` of a telemetry event, or None, and reasons (``""``: of the whole object)."""
        total, reasons = self._first.usage()
        if total is None:
            return None, reasons
        total = dict(total)
        for pid in {*process_tree(self._first.pid), *self._others} - {self._first.pid}:
            data, _ = self._others.setdefault(pid, ProcessUsage(pid)).usage()
            if data is None:
                self._end(pid)
            else:
                self._last[pid] = data
                for name, value in data.items():
                    total[name] = None if None in (value, total[name]) else total[name] + value
                    if total[name] is None:
                        reasons.setdefault(name, "not known of a descendant of the worker")
        for name, value in self._ended.items():
            total[name] = None if total[name] is None else total[name] + value
        return total, reasons

    def _end(self, pid: int) -> None:
        del self._others[pid]
        last = self._last.pop(pid, {})
        for name in _COUNTERS:
            self._ended[name] += last.get(name) or 0
