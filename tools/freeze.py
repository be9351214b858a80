"""Freeze a version of the rules: ``python -m tools.freeze 1.0`` writes ``rules/1.0/FROZEN.json``.

It holds the SHA-256 of every file of the version. A listed file must never change or be removed; new files
may be added, and running this again lists those too.

Lock entries of base images whose digests were not read back from their image registry are not listed: closed
accepts none of them, and adding a digest later must not require a new version.

A null value in the file of a workload can only be set by the next version (1.1, based on 1.0), which then
contains that file only. Logs of 1.0 are still judged by 1.0, and closed under 1.0 still refuses what is null.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from suite.rules.root import FROZEN, LATEST, SHIPPED, VERSIONS

FORMAT = "suite-frozen-rules/1"
_NOT_FROZEN = ("practice",)  # tests write its lock on each machine


class FrozenError(Exception):
    """A frozen file was changed or removed; the message names it."""


def frozen_versions() -> tuple[str, ...]:
    """The frozen versions."""
    return tuple(version for version in VERSIONS if (SHIPPED.folder(version) / FROZEN).exists())


def listed(folder: Path) -> dict[str, str]:
    """The frozen files of ``folder``: file -> SHA-256; empty without a list."""
    path = folder / FROZEN
    if not path.exists():
        return {}
    value = json.loads(path.read_text("ascii"))
    if value["format"] != FORMAT:
        raise FrozenError(f"{path}: expected format {FORMAT}, found {value['format']}")
    files: dict[str, str] = value["files"]
    return files


def departures(folder: Path) -> list[str]:
    """A message for every listed file that was changed or removed."""
    found = digests(folder)
    return [
        f"{folder.name}/{name}: expected SHA-256 {digest}, found {found.get(name, 'no such file')}; "
        "a frozen file never changes: restore it, and make the change in a new version"
        for name, digest in listed(folder).items()
        if found.get(name) != digest
    ]


def digests(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` except the list: file -> SHA-256."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != FROZEN
    }


def freezable(folder: Path) -> dict[str, str]:
    """The files to list: all but unresolved lock entries of the latest version, file -> SHA-256."""
    return {name: digest for name, digest in digests(folder).items() if not _is_unresolved(folder, name)}


def _is_unresolved(folder: Path, name: str) -> bool:
    """Whether ``name`` is a lock entry of the latest version without a digest from its image registry."""
    path = Path(name)
    if folder.name != LATEST or path.parts[0] != "images" or len(path.parts) != 2 or path.suffix != ".json":
        return False
    status = json.loads((folder / name).read_text("utf-8")).get("status")
    return status in ("unverified", "unresolved")


def freeze(folder: Path) -> Mapping[str, str]:
    """Write the list of ``folder``; FrozenError before writing if a listed file was changed or removed."""
    if wrong := departures(folder):
        raise FrozenError("\n".join(wrong))
    files = dict(sorted((freezable(folder) | listed(folder)).items()))
    text = json.dumps({"format": FORMAT, "files": files}, indent=2) + "\n"
    (folder / FROZEN).write_text(text, "ascii")
    return files


def main(argv: list[str]) -> int:
    """Freeze the given versions; 0, 1 if a frozen file changed, 2 for usage."""
    able = [version for version in VERSIONS if version not in _NOT_FROZEN]
    if not argv or not set(argv) <= set(able):
        print(f"usage: python -m tools.freeze VERSION… (of {', '.join(able)})", file=sys.stderr)
        return 2
    for version in argv:
        try:
            files = freeze(SHIPPED.folder(version))
        except FrozenError as error:
            print(f"freeze: {error}", file=sys.stderr)
            return 1
        print(f"rules/{version}/{FROZEN}: {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
