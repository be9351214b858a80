"""What the child may use and do.

Limits are the kernel's; the refusals of :func:`refuse` are Python's own (an audit hook), a second wall for
the case that hostile input exploits a fault of a reader. They do not contain native code.
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
    """A task was about to do what no task needs."""


class ImportRefusedError(RefusedError, ImportError):
    """An import that is refused: who can do without the module does."""


def limit() -> None:
    """Limit this process for good: memory, open files, nothing written, no core dumped."""
    sys.dont_write_bytecode = True  # a late import that tried would be refused
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (_at_most(what, most),) * 2)


def _at_most(what: int, wanted: int) -> int:
    _, hard = resource.getrlimit(what)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def grant_cpu(seconds: int = CPU_SECONDS) -> None:
    """Let this process use ``seconds`` of processor time from now on; more ends it (SIGXCPU)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(used.ru_utime + used.ru_stime) + 1 + seconds
    soft = until if hard == resource.RLIM_INFINITY else min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def refuse(late_imports: frozenset[str] = frozenset()) -> None:
    """From now on refuse sockets, processes, writing, and imports beyond these and the standard library."""
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
            raise RefusedError(f"a task writes nothing, this one was about to open {details[0]!r}")
    elif event == "import":
        if str(details[0]).partition(".")[0] not in allowed:
            raise ImportRefusedError(f"a task needs no module {details[0]!r}")
    elif event.startswith(_REFUSED):
        raise RefusedError(f"a task does no {event}")
