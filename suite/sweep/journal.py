"""The journal of matrices, sweeps and scaling sets: ``journal.jsonl`` in the results folder.

:mod:`suite.compare.journal` has the format; lines are only appended. The process of a command and its
current run hold a lock on the file: a second command cannot start, even if the first one was killed and left
its run behind.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from suite.compare.journal import JOURNAL, JournalLine, SweepLine, lines_of
from suite.plan.errors import StorageProblem

__all__ = ["JOURNAL", "JournalLine", "SweepLine", "append", "last_seed", "latest", "locked", "read"]


def read(folder: Path) -> tuple[JournalLine, ...]:
    """The cells in the journal of ``folder``, oldest line first; incomplete lines are skipped."""
    return tuple(line for line in _lines(folder) if isinstance(line, JournalLine))


def last_seed(folder: Path, sweep: str) -> int | None:
    """The seed that the last command of this sweep used; None before the first."""
    lines = [line for line in _lines(folder) if isinstance(line, SweepLine) and line.sweep == sweep]
    return lines[-1].seed if lines else None


def _lines(folder: Path) -> Iterator[JournalLine | SweepLine]:
    try:
        text = (folder / JOURNAL).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    yield from lines_of(text)


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
                "results_dir: another matrix, sweep or scaling set, or the last run of one, is still running "
                f"in {folder}; wait for its end, or set RESULTS_DIR to another folder"
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def append(descriptor: int, line: JournalLine | SweepLine) -> None:
    """Append one line to the locked journal; StorageProblem if that fails.

    After a line that an interruption left incomplete the new one begins on a line of its own.
    """
    text = json.dumps(asdict(line), sort_keys=True).encode() + b"\n"
    try:
        end = os.fstat(descriptor).st_size
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            text = b"\n" + text
        os.write(descriptor, text)
        os.fsync(descriptor)
    except OSError as error:
        raise StorageProblem(f"results_dir: {JOURNAL} cannot be written ({error.strerror})") from error
