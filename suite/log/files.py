"""Opens the folder of a result: only known file names, only regular files, each read once.

The reader refuses links, pipes and devices, limits the size of each file, and never builds a path from the
contents of a result. The checker judges exactly the bytes that were read here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from suite.log.canonical import MAX_FILE, sha256_hex
from suite.log.finding import Defect, RecordError

LOG = "run.jsonl"
CHANGES = "changes.patch"
BASELINE = "baseline.json"  # the shared file of the baseline that the header cites
MAX_CHANGES = 1 << 20  # bytes
ALLOWED = (LOG, "system.json", "attestation.dsse.json", "timestamp.tsr", CHANGES, BASELINE)
PARTIAL = ".partial"
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")  # category Cc but tab, LF, FF, CR
_MAX_LISTED = 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Changes:
    """Facts about changes.patch. Only people read its content; the checker only tests whether it is text."""

    bytes: int
    digest: str | None  # SHA-256; None where the file is too large to be read
    text: bool


@dataclass(frozen=True, slots=True)
class Raw:
    """The bytes of run.jsonl, and the name and file names of its folder."""

    name: str
    files: tuple[str, ...]
    data: bytes
    changes: Changes | None = None

    @property
    def partial(self) -> bool:
        """Whether the folder has the name of a run that is in progress or was interrupted."""
        return self.name.endswith(PARTIAL)


def folder_of(path: Path) -> Path:
    """The folder of a result; ``path`` is the folder or the log in it."""
    return path.parent if path.name == LOG and not path.is_dir() else path


def read_folder(path: Path) -> Raw:
    """The result in ``path``, its folder or the run.jsonl in it; RecordError if it cannot be read safely."""
    folder = folder_of(path)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused("folder", "a result's folder", os.strerror(error.errno or 0)) from error
    try:
        names = tuple(sorted(os.listdir(descriptor)))  # noqa: PTH208 - of the open folder, whatever its path
        others = [name for name in names if name not in ALLOWED]
        if others:
            allowed = ", ".join(ALLOWED)
            raise RecordError(
                [Defect("LOG-002", "folder", f"only {allowed}", n) for n in others[:_MAX_LISTED]]
            )
        for name in names:
            _regular(descriptor, name)
        changes = _changes(descriptor) if CHANGES in names else None
        return Raw(folder.resolve().name, names, read_file(descriptor, LOG), changes)
    finally:
        os.close(descriptor)


def _regular(folder: int, name: str) -> None:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode):
        raise _refused(name, "a regular file", "a link, folder, pipe or device")


def _changes(folder: int) -> Changes:
    size = os.stat(CHANGES, dir_fd=folder, follow_symlinks=False).st_size
    if size > MAX_CHANGES:
        return Changes(size, None, False)
    data = read_file(folder, CHANGES, MAX_CHANGES)
    return Changes(len(data), sha256_hex(data), _is_text(data))


def _is_text(data: bytes) -> bool:
    """Whether ``data`` is UTF-8 without control characters other than tabs and line breaks."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CONTROLS.search(text) is None


def read_file(folder: int, name: str, cap: int = MAX_FILE) -> bytes:
    """The bytes of the regular file ``name`` in the open folder, read once; RecordError otherwise."""
    try:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
    except OSError as error:
        found = "a link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise _refused(name, "a regular file", found) from error
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        os.close(descriptor)  # os.fdopen would raise an error of its own for a folder
        raise _refused(name, "a regular file", "a folder, pipe or device")
    with os.fdopen(descriptor, "rb") as file:
        if before.st_size > cap:
            raise RecordError([Defect("LOG-003", name, f"at most {cap} bytes", str(before.st_size))])
        data = file.read(before.st_size + 1)
        after = os.fstat(file.fileno())
    if len(data) != before.st_size or _version(before) != _version(after):
        raise _refused(
            name, f"a file that does not change ({before.st_size} bytes)", f"{len(data)} bytes read"
        )
    return data


def read_in(folder: Path, name: str, cap: int = MAX_FILE) -> bytes:
    """As :func:`read_file`, in a folder that is not open; OSError where it cannot be opened."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return read_file(descriptor, name, cap)
    finally:
        os.close(descriptor)


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _refused(location: str, expected: str, actual: str) -> RecordError:
    return RecordError([Defect("LOG-001", location, expected, actual)])
