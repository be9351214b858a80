"""Read values that may be unavailable: each None has a reason, under the dotted path of its field."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LARGEST_INTEGER = 2**53 - 1  # in the log

T = TypeVar("T")

_ERRORS = {
    errno.ENOENT: "not exposed by this kernel",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENODEV: "no such device",
    errno.EOPNOTSUPP: "not supported by this kernel",
    errno.ENOSYS: "not supported by this kernel",
}


class Unavailable(Exception):
    """A value that cannot be measured; the message is the reason in the log."""


class Collector:
    """Reads values one by one and keeps the reason of every unavailable one.

    ``reasons`` maps the dotted path of each null field to its reason.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def take(self, path: str, read: Callable[[], T]) -> T | None:
        """The value that ``read`` returns, or None with the reason stored under ``path``.

        Only :class:`Unavailable`, ``OSError`` and unreadable text (``ValueError``, ``LookupError``) count as
        unavailable; any other exception is a bug of the suite and is raised.
        """
        try:
            value = read()
            if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
                raise Unavailable("the counter is larger than the log's largest integer, 2^53 - 1")
            return value
        except Unavailable as problem:
            self.missing(path, str(problem))
        except OSError as problem:
            self.missing(path, describe(problem))
        except (ValueError, LookupError) as problem:
            self.missing(path, f"not in the expected format ({type(problem).__name__})")
        return None

    def missing(self, path: str, reason: str) -> None:
        """Store the ``reason`` why the field at ``path`` is null."""
        self.reasons[path] = reason

    def include(self, prefix: str, reasons: dict[str, str]) -> None:
        """Add the reasons of an object at the path ``prefix``."""
        for path, reason in reasons.items():
            self.reasons[f"{prefix}.{path}" if path else prefix] = reason


def describe(problem: OSError) -> str:
    """The reason of an ``OSError``, without its path."""
    return _ERRORS.get(problem.errno or 0, (problem.strerror or "read failed").lower())


def read_text(path: Path) -> str:
    """The text of a small kernel file, stripped."""
    return path.read_bytes().decode("utf-8", "replace").strip()


def read_int(path: Path) -> int:
    """The single integer in a kernel file."""
    return int(path.read_bytes())


def read_table(path: Path) -> dict[str, int]:
    """A kernel file of ``name value`` lines, such as cpu.stat."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}
