"""Long preparations as stages that can be resumed: a stage whose recorded files are unchanged is skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.datasets.verify import require_published, sha256_file

RECORD = "stages.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: it reads the files ``reads`` of a folder and writes the files ``writes`` there.

    ``run`` gets a path for each file to write, in their order. ``by`` identifies what else determines the
    bytes, such as the version of a tool.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    run: Callable[[Sequence[Path]], None]
    by: str = ""


def perform(
    stages: Sequence[Stage], folder: Path, published: Mapping[str, str], report: Callable[[str], None]
) -> None:
    """Run the unfinished stages in order. A file in ``published`` must have that checksum when written.

    The record has the SHA-256 of every file, so that a changed input, tool or output makes its stage and the
    following ones run again. Raises ``DatasetCorrupt`` with stage, expected and found.
    """
    record = _read(folder)
    for stage in stages:
        wanted = {"by": stage.by, "reads": {name: _digest(record, folder, name) for name in stage.reads}}
        if record["stages"].get(stage.name) == wanted and all(
            _known(record, folder, name) for name in stage.writes
        ):
            report(f"{stage.name}: done before")
            continue
        report(stage.name)
        record["stages"].pop(stage.name, None)
        parts = [folder / f"{name}.part" for name in stage.writes]
        stage.run(parts)
        for part, name in zip(parts, stage.writes, strict=True):
            _compare(stage, name, part, published)
            part.replace(folder / name)
            _note(record, folder, name)
        record["stages"][stage.name] = wanted
        _write(folder, record)


def _compare(stage: Stage, name: str, part: Path, published: Mapping[str, str]) -> None:
    if name in published:
        fix = "Archives or tools differ from the reference's; FROM=path takes its ready-made files."
        require_published(part, published[name], fix, f"{name} (stage {stage.name})")


def _digest(record: dict[str, Any], folder: Path, name: str) -> str:
    """The SHA-256 of a file, from the record if the file is unchanged."""
    if not _known(record, folder, name):
        _note(record, folder, name)
    found: str = record["files"][name]["sha256"]
    return found


def _known(record: dict[str, Any], folder: Path, name: str) -> bool:
    """Whether the file exists and is unchanged since its SHA-256 was recorded."""
    path = folder / name
    return path.is_file() and record["files"].get(name, {}).get("seen") == _seen(path)


def _note(record: dict[str, Any], folder: Path, name: str) -> None:
    path = folder / name
    record["files"][name] = {"sha256": sha256_file(path), "seen": _seen(path)}


def _seen(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _read(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_text())
        if isinstance(record["stages"], dict) and isinstance(record["files"], dict):
            return dict(record)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {"stages": {}, "files": {}}


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    temporary = folder / f"{RECORD}.part"
    temporary.write_text(json.dumps(record, indent=1))
    temporary.replace(folder / RECORD)
