"""The journal of a matrix: cells that left no result, with the reason. Everything else is in the results.

``matrix.jsonl`` in the results folder, one JSON object a line, appended. Whoever runs a matrix holds its
lock, and so does the run of the cell at hand: no second matrix starts beside one, not even beside what a
killed one left running.
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
    """A cell that left no result. ``status`` is ``N/A`` or ``failed``."""

    wall: str
    words: tuple[str, ...]
    code: str  # digest of the code that was to run
    status: str
    exit_code: int | None  # None where there is no such workload or pair
    reason: str
    group: tuple[str, ...]  # division, scale, data, mode
    key: dict[str, Any]


def read(folder: Path) -> tuple[JournalLine, ...]:
    """The journal of ``folder``, oldest first; a line that was cut off is skipped."""
    try:
        text = (folder / JOURNAL).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return tuple(line for raw in text.splitlines() if (line := _parsed(raw)) is not None)


def _parsed(raw: str) -> JournalLine | None:
    try:
        data = json.loads(raw)
        return JournalLine(**{**data, "words": tuple(data["words"]), "group": tuple(data["group"])})
    except (ValueError, TypeError, KeyError):
        return None


def latest(lines: Sequence[JournalLine], words: tuple[str, ...], code: str) -> JournalLine | None:
    """What the journal says last of these words under this code."""
    return next((line for line in reversed(lines) if (line.words, line.code) == (words, code)), None)


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the journal of ``folder``; gives the open file for children. StorageProblem if it is held."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / JOURNAL, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageProblem(
            f"results_dir: {folder} cannot be written ({error.strerror}); set RESULTS_DIR to one that can"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageProblem(
                f"results_dir: another matrix, or the last run of one, goes on in {folder}; wait for it, or "
                "set RESULTS_DIR to another folder"
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def append(descriptor: int, line: JournalLine) -> None:
    """Write one line to the locked journal; OSError if that fails."""
    os.write(descriptor, json.dumps(asdict(line), sort_keys=True).encode() + b"\n")
    os.fsync(descriptor)
