"""The folder layout of published logs: result folders in a tree, the facts in their names, safe reading.

``<org>/results/<system>/<benchmark>/result_<i>.txt``, in HPC below ``strong`` or ``weak``,
and ``<org>/systems/<system>.json``. No link is followed, and no text in a file is used as a path.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.log.files import read_file
from suite.log.finding import RecordError
from suite.log.safe import safe
from suite.mllog.events import number
from suite.mllog.rounds import is_repository, parse_round

MAX_LOG = 64 << 20  # bytes
MAX_SYSTEM = 1 << 20
MAX_ENTRIES, MAX_DEPTH = 500_000, 12
_LARGEST_FACTOR = 10.0
_NUMBERED = re.compile(r"result_(?:run)?_?([0-9]+)[^/]*?(?:\.txt|\.log|)")
SCALING, PARAMETERS = "scaling.json", "package_checker_params"
# Known files and folders beside the logs: those of the rules, and what MLCommons' tools read and write.
_NOT_LOGS = (
    "power", SCALING, PARAMETERS, "pruned_results", "README.md", "package_checker.log",
    "compliance_checker.log", "rcp_checker.log", "result_summarizer.log",
)  # fmt: skip
_SCALINGS = ("strong", "weak")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LayoutError(ValueError):
    """A path that holds no logs, or too many files; the message is safe to print."""


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """The facts in the path of a result folder; None where the layout differs."""

    org: str | None
    system: str | None
    benchmark: str | None
    scaling: str | None

    @property
    def weak(self) -> bool:
        """Whether the runs are instances of one job whose throughput is the score (HPC)."""
        return self.scaling == "weak"


def result_folder_of(folder: Path) -> ResultFolder:
    """The organisation, system and benchmark in the path of a result folder."""
    parts = folder.absolute().parts
    if "results" not in parts:
        return ResultFolder(None, None, None, None)
    at = len(parts) - 1 - parts[::-1].index("results")
    below = parts[at + 1 :]
    scaling = below[1] if len(below) == 3 and below[1] in _SCALINGS else None
    org = _org_of(parts[:at])
    if len(below) not in (2, 3) or (len(below) == 3 and scaling is None):
        return ResultFolder(org, below[0] if below else None, None, None)
    return ResultFolder(org, below[0], below[-1], scaling)


def _org_of(parts: tuple[str, ...]) -> str | None:
    """The organisation: the first folder of a published repository, else the one above ``results``.

    In v0.5 a folder for the version precedes it, and a folder for each submission follows.
    """
    for index, part in enumerate(parts):
        if is_repository(part):
            inner = [name for name in parts[index + 1 :] if parse_round(name) is None]
            return inner[0] if inner else None
    return parts[-1] if parts else None


def log_folders(root: Path) -> Iterator[Path]:
    """Every folder below ``root`` that holds logs, ``root`` included, in the order of names.

    LayoutError where the tree has more files or levels than any round.
    """
    seen = 0
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        names, below = [], []
        with os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if seen > MAX_ENTRIES or depth > MAX_DEPTH:
                    raise LayoutError(
                        f"expected at most {MAX_ENTRIES} files, {MAX_DEPTH} folders deep, found more"
                    )
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and entry.name != "power":
                        below.append(Path(entry.path))
                else:
                    names.append(entry.name)
        if logs_among(names, is_benchmark=result_folder_of(folder).benchmark is not None):
            yield folder
        waiting += [(path, depth + 1) for path in sorted(below, reverse=True)]


def logs_among(names: list[str], *, is_benchmark: bool) -> list[str]:
    """The logs among the names in a folder, by number; ``*.log`` where no name is numbered.

    ``result_<i>.txt`` where there are any: MLCommons' tools read no other files.
    """
    numbered = [name for name in names if _NUMBERED.fullmatch(name)]
    numbered = [name for name in numbered if name.endswith(".txt")] or numbered
    logs = numbered or ([name for name in names if name.endswith(".log")] if is_benchmark else [])
    return sorted(logs, key=_order)


def _order(name: str) -> tuple[int, str]:
    match = _NUMBERED.fullmatch(name)
    return (int(match[1][:9]) if match else 0), name


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The names of a folder's logs, of the known files beside them, and of unknown ones."""

    folder: Path
    logs: tuple[str, ...]
    beside: tuple[str, ...]
    others: tuple[str, ...]

    def read(self, name: str) -> bytes:
        """The bytes of one log; LayoutError where it is no regular file or too large."""
        return _read(self.folder, name, MAX_LOG)

    def parameters(self) -> tuple[str, ...]:
        """The lines of ``package_checker_params``, which switch off checks of MLCommons' package checker."""
        if PARAMETERS not in self.beside:
            return ()
        text = _read(self.folder, PARAMETERS, MAX_SYSTEM).decode("latin-1")
        return tuple(line.strip() for line in text.splitlines() if line.strip())

    def scaling(self) -> float:
        """The factor in ``scaling.json``, 1.0 without the file; LayoutError where it has no usable factor."""
        if SCALING not in self.beside:
            return 1.0
        try:
            value = json.loads(_read(self.folder, SCALING, MAX_SYSTEM).decode("latin-1"))
        except (ValueError, RecursionError) as error:
            raise LayoutError(f"expected JSON, found: {safe(error)}") from None
        factor = number(value.get("scaling_factor")) if isinstance(value, dict) else None
        if factor is None or not 0 < factor <= _LARGEST_FACTOR:
            raise LayoutError('expected {"scaling_factor": F}, F a number over 0 and at most 10')
        return factor


def log_files_of(path: Path) -> LogFiles:
    """The logs in a folder, or the single log ``path``."""
    if not path.is_dir():
        return LogFiles(path.parent, (path.name,), (), ())
    names = sorted(os.listdir(path))  # noqa: PTH208 - only the names are needed
    logs = logs_among(names, is_benchmark=result_folder_of(path).benchmark is not None)
    beside = [name for name in names if name in _NOT_LOGS]
    others = [name for name in names if name not in logs and name not in _NOT_LOGS]
    return LogFiles(path, tuple(logs), tuple(beside), tuple(others))


def read_system_description(path: Path, folder: ResultFolder) -> tuple[str, dict[str, Any]] | None:
    """File name and content of the system description of the result folder ``path``; None without one.

    ``systems/<system>.json``, or ``entry.json`` (v0.5). LayoutError where it cannot be read.
    """
    if folder.system is None:
        return None
    results = path.absolute().parents[2 if folder.scaling else 1]
    for parent, name in (
        (results.parent / "systems", f"{folder.system}.json"),
        (results / folder.system, "entry.json"),
    ):
        if not os.path.lexists(parent / name):
            continue
        try:
            value = json.loads(_read(parent, name, MAX_SYSTEM).decode("latin-1"))
        except (ValueError, RecursionError) as error:
            raise LayoutError(f"{safe(name)}: expected JSON, found: {safe(error)}") from None
        if not isinstance(value, dict):
            raise LayoutError(f"{safe(name)}: expected an object, found {type(value).__name__}")
        return name, value
    return None


def _read(folder: Path, name: str, cap: int) -> bytes:
    try:
        descriptor = os.open(folder, _OPEN_FOLDER)
    except OSError as error:
        raise LayoutError(f"{safe(folder)}: {os.strerror(error.errno or 0)}") from None
    try:
        return read_file(descriptor, name, cap)
    except RecordError as error:
        defect = error.defects[0]
        raise LayoutError(f"expected {safe(defect.expected)}, found {safe(defect.found)}") from None
    finally:
        os.close(descriptor)
