"""Limits and refusals of the child process.

The kernel enforces the limits. :func:`refuse` installs an audit hook of Python, a second barrier in case
hostile input exploits a fault of a reader. The hook does not restrict native code.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

MEMORY = 2 << 30  # bytes of address space
FILES = 64
CPU_SECONDS = 60  # of one task
WALL_SECONDS = 90.0  # of one task

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = (
    "socket.", "subprocess.", "ctypes.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "os.chown", "os.utime", "os.setxattr", "os.kill", "shutil.", "tempfile.", "webbrowser.", "urllib.",
    "pty.", "signal.pthread_kill", "pickle.",
)  # fmt: skip
_NEVER = {"ctypes", "multiprocessing", "subprocess", "socket", "pickle", "ftplib", "smtplib", "webbrowser"}


class RefusedError(RuntimeError):
    """A task attempted an operation that no task needs."""


class ImportRefusedError(RefusedError, ImportError):
    """A refused import; an ImportError, so that code with a fallback uses it."""


def limit() -> None:
    """Limit this process permanently: memory and open files, no bytes written, no core dump."""
    sys.dont_write_bytecode = True  # the hook would refuse it in a late import
    for kind, wanted in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, most))


def grant_cpu(seconds: int = CPU_SECONDS) -> None:
    """Allow this process ``seconds`` more of processor time; the kernel ends it afterwards (SIGXCPU)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(used.ru_utime + used.ru_stime) + 1 + seconds
    soft = until if hard == resource.RLIM_INFINITY else min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def refuse(late_imports: frozenset[str] = frozenset()) -> None:
    """Refuse sockets, processes, writing, and imports except ``late_imports`` and the standard library."""
    allowed = {"suite", *late_imports, *sys.stdlib_module_names} - _NEVER

    def hook(event: str, details: tuple[Any, ...]) -> None:
        _hook(allowed, event, details)

    sys.addaudithook(hook)


def _hook(allowed: set[str], event: str, details: tuple[Any, ...]) -> None:
    if event == "open":
        mode, flags = details[1], details[2]
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (
            isinstance(flags, int) and flags & _WRITES
        ):
            raise RefusedError(
                f"sandbox: expected a task that writes no file, found open of {details[0]!r} for writing"
            )
    elif event == "import":
        if str(details[0]).partition(".")[0] not in allowed:
            raise ImportRefusedError(
                f"sandbox: expected imports of the suite and its readers, found {details[0]!r}"
            )
    elif event.startswith(_REFUSED):
        raise RefusedError(f"sandbox: expected a task without {event}, found a call")
