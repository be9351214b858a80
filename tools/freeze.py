"""Freeze a version of the rules: ``python -m tools.freeze 1.0`` writes ``rules/1.0/FROZEN.json``.

It holds the SHA-256 of every file of the version. A listed file never changes again and never goes; new
files may stand beside them, and running this again lists those too.

Of the version in use, entries of base images that were not read back from their registry are not listed:
they say that something is not known, closed accepts none of them, and knowing it later must not need a new
version.
A value of a workload's file that is null when it is frozen is settled by the next version (1.1, based on
1.0), which needs to hold no more than that workload's file: logs of 1.0 go on being judged by 1.0, and
closed under 1.0 goes on refusing what 1.0 has not settled.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from suite.rules.root import FROZEN, LATEST, SHIPPED, VERSIONS

FORMAT = "suite-frozen-rules/1"
_MADE_HERE = ("practice",)  # its lock is made by the tests on each machine


class FrozenError(Exception):
    """A frozen file changed or is gone; the message names it."""


def frozen_versions() -> tuple[str, ...]:
    """The versions that are frozen."""
    return tuple(version for version in VERSIONS if (SHIPPED.folder(version) / FROZEN).exists())


def listed(folder: Path) -> dict[str, str]:
    """What is frozen in ``folder``: file -> SHA-256; nothing where there is no list."""
    path = folder / FROZEN
    if not path.exists():
        return {}
    value = json.loads(path.read_text("ascii"))
    if value["format"] != FORMAT:
        raise FrozenError(f"{path}: expected format {FORMAT}, found {value['format']}")
    files: dict[str, str] = value["files"]
    return files


def departures(folder: Path) -> list[str]:
    """Every listed file that changed or is gone, in words."""
    found = digests(folder)
    return [
        f"{folder.name}/{name}: expected SHA-256 {digest}, found {found.get(name, 'no such file')}; "
        "a frozen file never changes: restore it, and change what you meant to in a new version"
        for name, digest in listed(folder).items()
        if found.get(name) != digest
    ]


def digests(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` but the list itself: file -> SHA-256."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != FROZEN
    }


def freezable(folder: Path) -> dict[str, str]:
    """What would be listed: all files but, in use, the entries of images that nobody has resolved."""
    return {name: digest for name, digest in digests(folder).items() if not _open(folder, name)}


def _open(folder: Path, name: str) -> bool:
    """Whether ``name`` is an entry in use of a base image whose digest is not known from its registry."""
    path = Path(name)
    if folder.name != LATEST or path.parts[0] != "images" or len(path.parts) != 2 or path.suffix != ".json":
        return False
    status = json.loads((folder / name).read_text("utf-8")).get("status")
    return status in ("unverified", "unresolved")


def freeze(folder: Path) -> Mapping[str, str]:
    """Write the list of ``folder``; FrozenError, and nothing is written, if a listed file changed or went."""
    if wrong := departures(folder):
        raise FrozenError("\n".join(wrong))
    files = dict(sorted((freezable(folder) | listed(folder)).items()))
    text = json.dumps({"format": FORMAT, "files": files}, indent=2) + "\n"
    (folder / FROZEN).write_text(text, "ascii")
    return files


def main(argv: list[str]) -> int:
    """Freeze the versions named; 0, 1 where a frozen file changed, 2 for usage."""
    able = [version for version in VERSIONS if version not in _MADE_HERE]
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
