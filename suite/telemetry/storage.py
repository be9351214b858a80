"""File system and disk of folders, without a path, serial number or host name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from suite.telemetry.reading import Collector, Unavailable, read_int, read_text


def storage_facts(folders: dict[str, Path], root: Path = Path("/")) -> tuple[dict[str, Any], dict[str, str]]:
    """File system, model and kind of the disk of each of ``folders``, and the reasons of nulls.

    A folder that does not exist yet is on the disk of its nearest existing parent. ``root`` stands for / in
    tests.
    """
    facts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, folder in folders.items():
        existing = next(path for path in (folder, *folder.parents) if path.exists()).resolve()
        facts[name], unknown = _storage(existing, root)
        reasons |= {f"{name}.{field}": why for field, why in unknown.items()}
    return facts, reasons


def _storage(folder: Path, root: Path) -> tuple[dict[str, Any], dict[str, str]]:
    collector = Collector()
    found = collector.take("filesystem", lambda: _mount(folder, root))
    facts = {
        "filesystem": None if found is None else found[1],
        "disk": collector.take("disk", lambda: _model(found, root)),
        "rotational": collector.take("rotational", lambda: _rotational(found, root)),
    }
    return facts, collector.reasons


def _mount(folder: Path, root: Path) -> tuple[str, str]:
    """(major:minor, type) of the file system that ``folder`` is on: of the deepest mount above it."""
    found: dict[str, tuple[str, str]] = {}
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])  # a space is \040
        if folder.is_relative_to(point):
            found[point] = (fields[2], right.split()[0])
    if not found:
        raise Unavailable("its file system is not among the mounts")
    return found[max(found, key=len)]


def _device(found: tuple[str, str] | None, root: Path) -> Path:
    """The kernel's folder of the disk, not of its partition."""
    if found is None:
        raise Unavailable("its file system is not known")
    folder = root / "sys/dev/block" / found[0]
    if not folder.exists():
        raise Unavailable(f"a file system of type {found[1]} has no disk on this machine")
    folder = folder.resolve()
    return folder.parent if (folder / "partition").exists() else folder


def _model(found: tuple[str, str] | None, root: Path) -> str:
    path = _device(found, root) / "device/model"
    if not path.exists():
        raise Unavailable("the disk names no model")
    return read_text(path)


def _rotational(found: tuple[str, str] | None, root: Path) -> bool:
    return read_int(_device(found, root) / "queue/rotational") == 1
