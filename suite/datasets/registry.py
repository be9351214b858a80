"""The datasets that the rules know, read from ``rules/<version>/datasets/<name>.json``."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.datasets import ml_1m_mini, text8_mini, wmt16_mini
from suite.datasets.errors import UnknownDataset

RULES = Path(__file__).resolve().parents[2] / "rules"


@dataclass(frozen=True, slots=True)
class File:
    """Size in bytes and SHA-256 of one file; None where no verified copy has been recorded yet."""

    bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where an official dataset comes from: one zip archive and the member of it that is used."""

    url: str
    bytes: int
    md5: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of a dataset with several sources: its SHA-1, and the size of what is fetched for it.

    Where ``member`` is given, that is a zip with its own SHA-1.
    """

    url: str
    bytes: int
    sha1: str
    member: str | None = None
    archive_sha1: str | None = None


@dataclass(frozen=True, slots=True)
class Ratings:
    """What is known of a ratings file besides its bytes: lines, and how many users and items occur."""

    lines: int
    users: int
    items: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset as the rules describe it."""

    name: str
    kind: str  # mini | official
    workload: str
    files: Mapping[str, File]
    digest: str | None
    bytes: int | None
    generator: str | None
    licence: str
    source: Source | None
    ratings: Ratings | None
    unavailable: str | None  # why this version of the suite cannot prepare it
    pieces: Mapping[str, Piece] = field(default_factory=dict)  # where every file has a source of its own


@dataclass(frozen=True, slots=True)
class Generator:
    """How a mini dataset is made: version, the parameters recorded in the manifest, and the files' bytes."""

    version: str
    parameters: Callable[[], dict[str, int]]
    generate: Callable[[], dict[str, bytes]]


GENERATORS: dict[str, Generator] = {
    module.NAME: Generator(module.VERSION, module.parameters, module.generate)
    for module in (ml_1m_mini, text8_mini, wmt16_mini)
}


def names() -> list[str]:
    """Every dataset that some version of the rules describes, sorted."""
    return sorted({path.stem for path in RULES.glob("*/datasets/*.json")})


def entry(name: str) -> Entry:
    """The description of dataset ``name``; raises :class:`UnknownDataset`.

    A name means one dataset for good: a changed one takes a new name, so any rules file that has it will do.
    """
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
        raise UnknownDataset(f"no rules describe a dataset {name!r}. {hint}")
    path = min(RULES.glob(f"*/datasets/{name}.json"))
    return parse(json.loads(path.read_text("utf-8")))


def parse(data: Mapping[str, Any]) -> Entry:
    """An :class:`Entry` from the JSON of a rules file."""
    source, ratings = data.get("source"), data.get("ratings")
    return Entry(
        name=data["name"],
        kind=data["kind"],
        workload=data["workload"],
        files={name: File(file["bytes"], file["sha256"]) for name, file in sorted(data["files"].items())},
        digest=data["digest"],
        bytes=data["bytes"],
        generator=data["generator"],
        licence=data["licence"],
        source=None if source is None else Source(**source),
        ratings=None if ratings is None else Ratings(**ratings),
        unavailable=data.get("unavailable"),
        pieces={name: Piece(**piece) for name, piece in sorted(data.get("pieces", {}).items())},
    )


def digest_of(checksums: Mapping[str, str]) -> str:
    """The dataset's digest: SHA-256 over lines ``<sha256>  <name>`` in the order of names."""
    lines = "".join(f"{checksums[name]}  {name}\n" for name in sorted(checksums))
    return hashlib.sha256(lines.encode()).hexdigest()
