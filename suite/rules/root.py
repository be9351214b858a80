"""The folder of the rules: its versions, and the files that apply to each version.

A version is a folder with a ``limits.json``. It inherits every file that it lacks from the version that its
limits name as ``base``, except in folders that its limits list as ``own``. Names from a log are only looked
up among existing versions and files; they never become part of a path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LATEST = "1.0"  # the version of new runs at reference scale
FROZEN = "FROZEN.json"  # the digests of a frozen version's files; no rule file itself
_LIMITS = "limits.json"


@dataclass(frozen=True, slots=True)
class RulesRoot:
    """The versions in one folder; tests and auditors may use other folders than :data:`SHIPPED`."""

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
        """``version`` and the versions that it is based on, nearest first; unknown ones count as LATEST."""
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
    inherits = folder not in root.limits(version).get("own", ())
    found: dict[str, Path] = {}
    for name in reversed(root.lineage(version) if inherits else (version,)):
        found |= {path.stem: path for path in sorted((root.folder(name) / folder).glob("*.json"))}
    return found


SHIPPED = RulesRoot(Path(__file__).resolve().parents[2] / "rules")
VERSIONS = SHIPPED.versions
