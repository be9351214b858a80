"""Paths given as results: name what else is there, such as an archive or a scaling set, and what helps."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from suite.cli.guard import UsageError, relative
from suite.compare.scaling_set import FILE, ScalingSet, is_set, read_set, run_folder
from suite.log.files import LOG
from suite.log.finding import RecordError
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
    """Why ``path`` is no result, in one line: nothing, an archive or a scaling set; None otherwise."""
    if is_set(path) and path.exists():
        return _set_problem(path)
    return advice(path) if path.exists() else f"nothing at {safe(path)}"


def result_problem(path: Path) -> str | None:
    """Why ``path`` can be no result's folder, in one line; None if the checker should read it."""
    if path.is_dir() and not is_set(path) and not os.path.lexists(path / LOG):
        if path.suffix == ".debug":
            return f"the debug text of a run at {safe(path)}: the result is beside it, without .debug"
        if any(inner.is_dir() for inner in path.iterdir()):
            several = "give one of them, or a tree of submissions to `check-submissions`"
            return f"a folder of folders at {safe(path)}: {several}"
    return problem_of(path)


def refuse_result(folder: Path) -> None:
    """UsageError if ``folder``, given as the folder that holds results, is itself a result or a set."""
    if is_set(folder) or os.path.lexists(folder / LOG):
        found = f"a result at {safe(folder, 300)}: give it as RESULT={safe(folder, 300)}"
        raise UsageError(f"--results-dir: expected the folder that holds results, found {found}")


def _set_problem(path: Path) -> str:
    """That ``path`` is a scaling set, and the folders of its runs."""
    folder = path.parent if path.name == FILE else path
    text = f"{safe(folder, 300)}: this is a scaling set; give one of its runs"
    try:
        known = ScalingSet.of_dict(read_set(folder))
    except RecordError:  # `check` says what is wrong with the set
        return text
    arms = [(name, arm.run_id) for group in known.groups for name, arm in group.arms.items()]
    if not arms:
        return f"{safe(folder, 300)}: this is a scaling set without a finished run"
    where = relative(run_folder(folder, known.workload, arms[0][1]).parent)
    return f"{text}, in {safe(where, 300)}: {', '.join(f'{run_id} ({name})' for name, run_id in arms)}"


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
