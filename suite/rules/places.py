"""Where rules lie, and which versions exist: a closed list, only ever compared for equality."""

from __future__ import annotations

from functools import cache
from pathlib import Path

VERSIONS = ("0.1", "0.2", "1.0", "1.1", "1.2", "practice")
NEWEST = "1.2"
# Under older versions no new result is taken: they lack rules of today, and whoever forges would choose them.
# What was submitted while they were in use is listed in submissions/registry/earlier.json (rule SUBM-009).
ENDED = VERSIONS[: VERSIONS.index(NEWEST)]
FROZEN = "FROZEN.json"  # the digests of a frozen version's files: about the rules, not one of them
# What a version does not have itself is taken from the next one in its lineage; 1.0 stands by itself.
_BASES = {"0.1": None, "0.2": "0.1", "1.0": None, "1.1": "1.0", "1.2": "1.1", "practice": "1.2"}
_OWN = {"practice": ("workloads", "datasets")}  # folders that a version takes from nobody

_ROOT = Path(__file__).resolve().parents[2] / "rules"


def folder_of(version: str) -> Path:
    """The folder of a shipped version; ValueError for any other."""
    if version not in VERSIONS:
        raise ValueError(f"rules: expected one of {', '.join(VERSIONS)}, found {version!r}")
    return _ROOT / version


def lineage(version: object) -> tuple[str, ...]:
    """``version`` and what it is based on, nearest first; the newest one's for an unknown version."""
    found = [version if isinstance(version, str) and version in VERSIONS else NEWEST]
    while (base := _BASES[found[-1]]) is not None:
        found.append(base)
    return tuple(found)


def since(version: str) -> tuple[str, ...]:
    """The numbered versions up to the one that ``version`` is or is based on: what may be as old as it."""
    numbered = next(name for name in lineage(version) if name != "practice")
    return VERSIONS[: VERSIONS.index(numbered) + 1]


@cache
def files_in(version: str, folder: str = "") -> dict[str, Path]:
    """The JSON files of one folder of the rules by stem, each from the nearest version that has it.

    Names from a log are only ever looked up here. ValueError for a version that was not shipped.
    """
    folder_of(version)
    own = folder in _OWN.get(version, ())
    found: dict[str, Path] = {}
    for name in reversed((version,) if own else lineage(version)):
        found |= {path.stem: path for path in sorted((folder_of(name) / folder).glob("*.json"))}
    return found


def name_of(path: Path) -> str:
    """The name that a rule file has in a log: "1.0/limits.json"."""
    return path.relative_to(_ROOT).as_posix()
