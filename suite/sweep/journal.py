"""The journal of a matrix, ``matrix.jsonl`` in the results folder: the cells without a result, with reasons.

Each line is one JSON object; lines are only appended. The process of a matrix and its current run hold a lock
on the file: a second matrix cannot start, even if the first one was killed and left its run behind.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.plan.errors import StorageProblem

JOURNAL = "matrix.jsonl"


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A cell without a result. ``status`` is ``N/A`` or ``failed``."""

    wall: str
    options: tuple[str, ...]
    code: str  # digest of the code of the checkout
    status: str
    exit_code: int | None  # None if the workload or the pair does not exist
    reason: str
    group: tuple[str, ...]  # division, scale, data, mode
    key: dict[str, Any]


def read(folder: Path) -> tuple[JournalLine, ...]:
    """Read the journal of ``folder``, oldest line first; incomplete lines are skipped."""
    try:
        text = (folder / JOURNAL).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return tuple(line for raw in text.splitlines() if (line := _parsed(raw)) is not None)


def _parsed(raw: str) -> JournalLine | None:
    try:
        data = json.loads(raw)
        return JournalLine(**{**data, "options": tuple(data["options"]), "group": tuple(data["group"])})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def latest(lines: Sequence[JournalLine], options: tuple[str, ...], code: str) -> JournalLine | None:
    """The last line of the cell with these options under this code; None without one."""
    return next((line for line in reversed(lines) if (line.options, line.code) == (options, code)), None)


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock the journal of ``folder``; gives its file descriptor. StorageProblem if it cannot be locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / JOURNAL, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageProblem(
            f"results_dir: expected a writable folder, found {folder} ({error.strerror}); set RESULTS_DIR to "
            "another one"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageProblem(
                "results_dir: another matrix or scaling set, or the last run of one, is still running in "
                f"{folder}; wait for its end, or set RESULTS_DIR to another folder"
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def append(descriptor: int, line: JournalLine) -> None:
    """Append one line to the locked journal; OSError if that fails."""
    os.write(descriptor, json.dumps(asdict(line), sort_keys=True).encode() + b"\n")
    os.fsync(descriptor)
