"""Where rules lie, and which versions exist: a closed list, only ever compared for equality."""

from __future__ import annotations

from pathlib import Path

VERSIONS = ("0.1", "practice")
_BASES = {"0.1": "0.1", "practice": "0.1"}  # whose checks, schemas and devices a version uses
NEWEST = "0.1"

_ROOT = Path(__file__).resolve().parents[2] / "rules"


def folder_of(version: str) -> Path:
    """The folder of a shipped version; ValueError for any other."""
    if version not in VERSIONS:
        raise ValueError(f"rules: expected one of {', '.join(VERSIONS)}, found {version!r}")
    return _ROOT / version


def base_of(version: object) -> str:
    """The version that ``version`` takes checks, schemas and devices from; the newest for an unknown one."""
    return _BASES.get(version, NEWEST) if isinstance(version, str) else NEWEST
