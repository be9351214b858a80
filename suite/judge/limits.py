"""What the child may use and do.

Limits are the kernel's; the refusals of :func:`refuse` are Python's own (an audit hook), a second wall for
the case that a reader's fault is turned against it. They are no sandbox for native code.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

MEMORY = 2 << 30  # bytes of address space
FILES = 64
CPU_SECONDS = 60  # of one check
WALL_SECONDS = 90.0  # of one check

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = (
    "socket.", "subprocess.", "ctypes.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "os.chown", "os.utime", "os.setxattr", "os.kill", "shutil.", "tempfile.", "webbrowser.", "urllib.",
    "pty.", "signal.pthread_kill", "pickle.",
)  # fmt: skip
_PACKAGES = {  # jsonschema is imported where a value has to be explained, with what it needs
    "suite", "jsonschema", "jsonschema_specifications", "referencing", "rpds", "attr", "attrs",
    "typing_extensions",
}  # fmt: skip
_NEVER = {"ctypes", "multiprocessing", "subprocess", "socket", "pickle", "ftplib", "smtplib", "webbrowser"}


class RefusedError(RuntimeError):
    """The checker was about to do what no check needs."""


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


def refuse() -> None:
    """From now on refuse sockets, processes, writing, and modules that no check needs."""
    sys.addaudithook(_hook)


def _hook(event: str, details: tuple[Any, ...]) -> None:
    if event == "open":
        mode, flags = details[1], details[2]
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (
            isinstance(flags, int) and flags & _WRITES
        ):
            raise RefusedError(f"a check writes nothing, was about to open {details[0]!r}")
    elif event == "import":
        top = str(details[0]).partition(".")[0]
        if top in _NEVER or (top not in _PACKAGES and top not in sys.stdlib_module_names):
            raise ImportRefusedError(f"a check needs no module {details[0]!r}")
    elif event.startswith(_REFUSED):
        raise RefusedError(f"a check does no {event}")
