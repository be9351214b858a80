"""The only writer of a run's log."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from suite.log.canonical import ZERO, encode, sha256_hex
from suite.log.files import LOG, PARTIAL

_NO_FILES: Mapping[str, bytes] = {}


class LogError(OSError):
    """The log cannot be written; the message states the reason and the fix."""


class NoSpaceError(LogError):
    """The disk or the quota is full."""


class ReadOnlyError(LogError):
    """The results folder cannot be written."""


class LogExistsError(LogError):
    """A result with this run id exists; results are never overwritten."""


class LogWriter:
    """Writes ``run.jsonl`` line by line in ``<run id>.partial`` and renames the folder when it is complete.

    ``folder`` is the final path of the result, ``results/<run id>``; its name is the header's ``run_id``. The
    header becomes event 0. Every line is written at once (and synced at the footer): a killed harness leaves
    all events so far. A line and the digest for the next line are updated within ``held``, which delays
    signals. ``files`` are written beside the log before its first line (changes.patch).
    """

    def __init__(
        self,
        folder: Path,
        header: Mapping[str, Any],
        held: Callable[[], AbstractContextManager[None]] = nullcontext,
        files: Mapping[str, bytes] = _NO_FILES,
    ) -> None:
        if folder.name != header["run_id"]:
            raise ValueError(
                f"the folder is named after the run id: expected {header['run_id']}, found {folder.name}"
            )
        self.folder = folder
        self.partial = folder.with_name(folder.name + PARTIAL)
        self.origin_ns = time.monotonic_ns()
        self._held = held
        self._files = tuple(files)
        self._previous = ZERO
        self._sequence = 0
        self._last_ns = 0
        line = self._line("header", header, None, 0)
        if folder.exists():
            raise LogExistsError(errno.EEXIST, f"results are never overwritten; {folder.name} exists")
        self._descriptor = _create(self.partial)
        try:
            for name, content in files.items():
                _write_beside(self.partial / name, content)
            self._append(line)
        except LogError:
            self.discard()
            raise

    def offset(self, monotonic_ns: int) -> int:
        """``monotonic_ns`` (CLOCK_MONOTONIC) as the log holds it: ns since the run's first event."""
        return monotonic_ns - self.origin_ns

    def event(
        self, kind: str, data: Mapping[str, Any], repeat: int | None, mono_ns: int | None = None
    ) -> None:
        """Append one event. ``mono_ns`` is its receipt as an offset (see :meth:`offset`); now by default.

        Times never decrease: an event received before the last written one gets that one's time. Raises
        NotCanonicalError (a bug of the caller) before anything is written, LogError if writing fails.
        """
        self._append(self._line(kind, data, repeat, mono_ns))

    def close(
        self,
        outcome: str,
        claims: Mapping[str, Any] | None,
        reasons: Mapping[str, str],
        rename: bool = True,
    ) -> Path:
        """Write the footer, sync, and with ``rename`` give the folder its final name; returns its path.

        ``outcome`` is completed, out_of_memory or aborted; ``claims`` is None unless completed. ``reasons``
        explains the nulls, including null claims (``suite.log.claims`` gives both).
        """
        data = {
            "events": self._sequence + 1,
            "outcome": outcome,
            "claims": None if claims is None else dict(claims),
            "reasons": dict(reasons),
        }
        self._append(self._line("footer", data, None, None))
        try:
            os.fsync(self._descriptor)
            self.abandon()
            if not rename:
                return self.partial
            if self.folder.exists():
                raise LogExistsError(
                    errno.EEXIST, f"results are never overwritten; {self.folder.name} exists"
                )
            self.partial.rename(self.folder)
            _sync_folder(self.folder)
            _sync_folder(self.folder.parent)
        except OSError as error:
            raise _explained(error) from error
        return self.folder

    def abandon(self) -> None:
        """Close the file and leave the ``.partial`` folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Remove the ``.partial`` folder, after a failure before repeat 0."""
        self.abandon()
        for name in (LOG, *self._files):
            (self.partial / name).unlink(missing_ok=True)
        self.partial.rmdir()

    def _line(self, kind: str, data: Mapping[str, Any], repeat: int | None, mono_ns: int | None) -> bytes:
        now = time.monotonic_ns() - self.origin_ns if mono_ns is None else mono_ns
        self._last_ns = max(self._last_ns, now)
        wall = datetime.now(timezone.utc)  # noqa: UP017 - works in every supported Python
        return encode(
            {
                "data": dict(data),
                "kind": kind,
                "mono_ns": self._last_ns,
                "prev": self._previous,
                "repeat": repeat,
                "seq": self._sequence,
                "v": 1,
                "wall": wall.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
        )

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise ValueError("the log is closed")
        rest = memoryview(line)
        with self._held():
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                raise _explained(error) from error
            self._previous = sha256_hex(line)
            self._sequence += 1


def _create(partial: Path) -> int:
    """Make the folder and its empty log; on failure nothing is left behind."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
    except OSError as error:
        raise _explained(error) from error
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(partial / LOG, flags, 0o644)
    except OSError as error:
        partial.rmdir()
        raise _explained(error) from error


def _write_beside(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _explained(error) from error


def _sync_folder(folder: Path) -> None:
    """Make a new name durable, on file systems that can sync a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _explained(error: OSError) -> LogError:
    if isinstance(error, LogError):
        return error
    number = error.errno or errno.EIO
    if number in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(
            number, "no space left for the log: free space, or set RESULTS_DIR to another disk"
        )
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyError(number, "the results folder cannot be written: set RESULTS_DIR to one that can")
    if number == errno.EEXIST:
        return LogExistsError(
            number, "a run of this id is in progress or was killed: results are never overwritten"
        )
    return LogError(number, f"the log cannot be written: {os.strerror(number)}")
