"""The folder of the rules: which versions there are, and which file of a version applies.

A version is a folder with a ``limits.json``. What it does not have itself is taken from the version that its
limits name as ``base``; folders that its limits list as ``own`` are taken from nobody. Names from a log are
only ever looked up among the versions and files that are there: they never become part of a path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LATEST = "1.0"  # the version in use: new runs at reference scale are under it
FROZEN = "FROZEN.json"  # the digests of a frozen version's files: about the rules, not one of them
_LIMITS = "limits.json"


@dataclass(frozen=True, slots=True)
class RulesRoot:
    """The versions in one folder. Another folder than the project's own is for tests and auditors."""

    path: Path

    @property
    def versions(self) -> tuple[str, ...]:
        """The names of the versions, in order."""
        return _versions(self)

    def folder(self, version: str) -> Path:
        """The folder of a version; ValueError where there is none of that name."""
        if version not in self.versions:
            raise ValueError(f"rules: expected one of {', '.join(self.versions)}, found {version!r}")
        return self.path / version

    def limits(self, version: str) -> dict[str, Any]:
        """The ``limits.json`` of a version; ValueError where there is none of that name."""
        return _limits(self, version)

    def lineage(self, version: object) -> tuple[str, ...]:
        """``version`` and what it is based on, nearest first; that of :data:`LATEST` for an unknown one."""
        found = [version if isinstance(version, str) and version in self.versions else LATEST]
        while (base := self.limits(found[-1]).get("base")) is not None:
            found.append(base)
        return tuple(found)

    def files(self, version: str, folder: str = "") -> dict[str, Path]:
        """The JSON files of one folder of a version by stem, each from the nearest version that has it.

        ValueError where there is no such version.
        """
        return _files(self, version, folder)

    def name(self, path: Path) -> str:
        """The name that a rule file has in a log: "1.0/limits.json"."""
        return path.relative_to(self.path).as_posix()


@cache
def _versions(root: RulesRoot) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in root.path.glob(f"*/{_LIMITS}")))


@cache
def _limits(root: RulesRoot, version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root.folder(version) / _LIMITS).read_text("utf-8"))
    return found


@cache
def _files(root: RulesRoot, version: str, folder: str) -> dict[str, Path]:
    own = folder in root.limits(version).get("own", ())
    found: dict[str, Path] = {}
    for name in reversed((version,) if own else root.lineage(version)):
        found |= {path.stem: path for path in sorted((root.folder(name) / folder).glob("*.json"))}
    return found


SHIPPED = RulesRoot(Path(__file__).resolve().parents[2] / "rules")
VERSIONS = SHIPPED.versions
