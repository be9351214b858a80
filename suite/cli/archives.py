"""Paths given as results: name what else is there, such as an archive, and the command that helps."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from suite.log.safe import safe

# (offset, bytes, name, command). A compressed tar is named by its compression.
_MAGIC = (
    (0, b"PK\x03\x04", "zip archive", "unzip -d {to} {path}"),
    (0, b"PK\x05\x06", "zip archive", "unzip -d {to} {path}"),
    (257, b"ustar", "tar archive", "mkdir {to} && tar -xf {path} -C {to} --no-same-owner"),
    (0, b"\x1f\x8b", "gzip file", "mkdir {to} && tar -xzf {path} -C {to} --no-same-owner"),
    (0, b"\x28\xb5\x2f\xfd", "zstandard file", "mkdir {to} && tar --zstd -xf {path} -C {to} --no-same-owner"),
    (0, b"BZh", "bzip2 file", "mkdir {to} && tar -xjf {path} -C {to} --no-same-owner"),
    (0, b"\xfd7zXZ\x00", "xz file", "mkdir {to} && tar -xJf {path} -C {to} --no-same-owner"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z archive", "7z x -o{to} {path}"),
)
_HEAD = 512


def problem_of(path: Path) -> str | None:
    """Why ``path`` is no result, in one line: it does not exist, or is an archive; None otherwise."""
    return advice(path) if path.exists() else f"nothing at {safe(path)}"


def result_problem(path: Path) -> str | None:
    """Why ``path`` can be no result's folder, in one line; None if the checker should read it."""
    if path.is_dir() and not os.path.lexists(path / "run.jsonl"):
        if path.suffix == ".debug":
            return f"the debug text of a run at {safe(path)}: the result is beside it, without .debug"
        if any(inner.is_dir() for inner in path.iterdir()):
            several = "give one of them, or a tree of submissions to `check-submissions`"
            return f"a folder of folders at {safe(path)}: {several}"
    return problem_of(path)


def advice(path: Path) -> str | None:
    """The name of the archive at ``path`` and the fix, in one line; None if it is no archive."""
    head = _head(path)
    for offset, magic, name, command in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            shown = safe(path, 4096)
            if shown != str(path):
                return f"a {name} whose name needs escapes: rename it, unpack it, and give the folder"
            unpack = command.format(path=shlex.quote(str(path)), to="unpacked")
            return f"a {name}, which is not unpacked here; do that with `{unpack}` and give the folder in it"
    return None


def _head(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _HEAD) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
