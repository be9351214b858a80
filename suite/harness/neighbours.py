"""Other runs of the suite that measure on this machine at the same time."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "dl-benchmark-suite/measuring/"


@contextmanager
def announced(run_id: str) -> Iterator[list[str]]:
    """Announce that this process measures ``run_id``; yields the ids of the runs that others measure now.

    The announcement is the name of a socket in Linux's abstract namespace, which has no file, is visible to
    all users of the machine, and ends with the process. Containers with a network of their own do not see it.
    """
    others = _measuring()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
        with contextlib.suppress(OSError):  # a sandbox may refuse it; the run does not need it
            mine.bind(f"\0{_PREFIX}{os.getpid()}/{run_id}")
        yield others


def _measuring() -> list[str]:
    """The ids of the runs whose processes have announced them."""
    try:
        lines = Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    names = [line.partition(f"@{_PREFIX}")[2] for line in lines]
    return sorted(name.partition("/")[2] for name in names if name)
