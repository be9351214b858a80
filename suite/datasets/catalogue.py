"""The dataset catalogue: the datasets that ``rules/<version>/datasets/<name>.json`` describe."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.datasets import (
    cifar_10_mini,
    coco_mini,
    imagenet_mini,
    ml_1m_mini,
    ptb_mini,
    text8_mini,
    wmt16_mini,
)
from suite.datasets.errors import UnknownDataset
from suite.rules.root import VERSIONS

RULES = Path(__file__).resolve().parents[2] / "rules"


@dataclass(frozen=True, slots=True)
class File:
    """Size in bytes and SHA-256 of one file; None where no verified copy has been recorded yet."""

    bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class DownloadSource:
    """Where an official dataset comes from: one archive, zip or tar.gz.

    ``member`` is the name of the one member that becomes the dataset's one file; where it is None, the
    members have the names of the dataset's files.
    """

    url: str
    bytes: int
    md5: str | None
    sha256: str | None
    member: str | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """A dataset of image files: its lists ``train.txt`` and ``val.txt`` name them, each with its SHA-256.

    ``identity`` states what is hashed: ``pixels``, since the bytes that an encoder writes differ between
    builds of libjpeg, or ``bytes``, where the files are the publisher's. ``annotations`` is the number of
    annotated objects of train and val, crowds included; None without annotations.
    """

    classes: int
    train: int
    val: int
    identity: str
    annotations: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Archives that are unpacked once; ``bytes`` is the peak use of disk.

    The ``member`` of an archive is the folder whose members are used.
    """

    archives: tuple[DownloadSource, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Published weights of a trained backbone, from which quality runs start: a PyTorch checkpoint.

    ``sha256`` may be the first digits only, as in the names of PyTorch's files; ``bytes`` is None where no
    size is published.
    """

    url: str
    bytes: int | None
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of a dataset with several sources, plain or, with ``member``, in a zip.

    Checksums are "md5:…" or "sha1:…", ``bytes`` is the size of the download; None where none is published.
    """

    url: str
    checksum: str
    bytes: int | None = None
    lines: int | None = None
    member: str | None = None
    archive: str | None = None  # the zip's checksum


@dataclass(frozen=True, slots=True)
class Archive:
    """One of several archives that a dataset is made of; size and SHA-256 may be unknown (None).

    ``members`` are the names, without folders, of the files used. ``instead`` names the archive that this one
    can replace: it is never fetched, only accepted as a copy.
    """

    url: str
    bytes: int | None
    sha256: str | None
    members: tuple[str, ...]
    instead: str | None

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a dataset is made of its archives (``suite.datasets.<name>``), its disk use and expected result."""

    archives: tuple[Archive, ...]
    disk_bytes: int  # at the peak, an estimate
    pairs: int  # sentence pairs that stay in the training text


@dataclass(frozen=True, slots=True)
class Ratings:
    """The expected content of a ratings file: lines, and the numbers of users and items that occur."""

    lines: int
    users: int
    items: int


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One dataset as the rules describe it."""

    name: str
    kind: str  # mini | official
    workload: str
    files: Mapping[str, File]
    digest: str | None
    bytes: int | None
    generator: str | None
    licence: str
    source: DownloadSource | None
    ratings: Ratings | None
    unavailable: str | None  # why this version of the suite cannot prepare it
    images: Images | None = None
    published: Mapping[str, str] = field(default_factory=dict)  # file -> "md5:…" or "sha1:…"
    pieces: Mapping[str, Piece] = field(default_factory=dict)  # where every file has a separate source
    recipe: Recipe | None = None
    unpacked: Unpacked | None = None
    weights: Weights | None = None

    @property
    def count(self) -> int:
        """The number of files, images included."""
        return len(self.files) + (self.images.train + self.images.val if self.images else 0)

    @property
    def checksums(self) -> Mapping[str, str]:
        """The publisher's checksums of the files, "md5:…" or "sha1:…"."""
        return {**self.published, **{name: piece.checksum for name, piece in self.pieces.items()}}

    @property
    def fetchable(self) -> bool:
        """Whether it can be downloaded without an account."""
        return bool(self.source or self.pieces or self.recipe or self.unpacked)


@dataclass(frozen=True, slots=True)
class Generator:
    """How a mini dataset is made: version, the parameters recorded in the manifest, and the files' bytes."""

    version: str
    parameters: Callable[[], dict[str, int]]
    generate: Callable[[], dict[str, bytes]]


GENERATORS: dict[str, Generator] = {
    module.NAME: Generator(module.VERSION, module.parameters, module.generate)
    for module in (cifar_10_mini, coco_mini, imagenet_mini, ml_1m_mini, ptb_mini, text8_mini, wmt16_mini)
}


def names() -> list[str]:
    """Every dataset that some version of the rules describes, sorted."""
    return sorted({path.stem for path in RULES.glob("*/datasets/*.json")})


def entry(name: str) -> CatalogueEntry:
    """The description of dataset ``name``; raises :class:`UnknownDataset`.

    A name stands for one dataset for ever: a changed dataset gets a new name, so every file of the rules that
    has the name describes the same data.
    """
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
        raise UnknownDataset(f"no rules describe a dataset {name!r}. {hint}")
    # The newest version that has the name may state more about the same files.
    paths = (RULES / version / "datasets" / f"{name}.json" for version in reversed(VERSIONS))
    path = next(path for path in paths if path.is_file())
    return parse(json.loads(path.read_text("utf-8")))


def parse(data: Mapping[str, Any]) -> CatalogueEntry:
    """A :class:`CatalogueEntry` from the JSON of a rules file."""
    source, ratings, images = data.get("source"), data.get("ratings"), data.get("images")
    recipe, unpacked, weights = data.get("recipe"), data.get("unpacked"), data.get("weights")
    return CatalogueEntry(
        name=data["name"],
        kind=data["kind"],
        workload=data["workload"],
        files={name: File(file["bytes"], file["sha256"]) for name, file in sorted(data["files"].items())},
        digest=data["digest"],
        bytes=data["bytes"],
        generator=data["generator"],
        licence=data["licence"],
        source=None if source is None else DownloadSource(**source),
        ratings=None if ratings is None else Ratings(**ratings),
        unavailable=data.get("unavailable"),
        images=None if images is None else _images(images),
        published={
            name: f"{kind}:{digest}"
            for kind in ("md5", "sha1")
            for name, digest in data.get(kind, {}).items()
        },
        pieces={name: Piece(**piece) for name, piece in sorted(data.get("pieces", {}).items())},
        recipe=None if recipe is None else _recipe(recipe),
        unpacked=None
        if unpacked is None
        else Unpacked(tuple(DownloadSource(**row) for row in unpacked["archives"]), unpacked["bytes"]),
        weights=None if weights is None else Weights(**weights),
    )


def _images(data: Mapping[str, Any]) -> Images:
    annotations = data.get("annotations")
    return Images(**{**data, "annotations": None if annotations is None else tuple(annotations)})


def _recipe(data: Mapping[str, Any]) -> Recipe:
    archives = (
        Archive(row["url"], row["bytes"], row["sha256"], tuple(row["members"]), row.get("instead"))
        for row in data["archives"]
    )
    return Recipe(tuple(archives), data["disk_bytes"], data["pairs"])


def digest_of(checksums: Mapping[str, str]) -> str:
    """The dataset's digest: SHA-256 over lines ``<sha256>  <name>``, sorted by name."""
    lines = "".join(f"{checksums[name]}  {name}\n" for name in sorted(checksums))
    return hashlib.sha256(lines.encode()).hexdigest()
