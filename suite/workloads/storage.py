"""The storage formats into which a folder of images can be converted, and how it is split into shards.

Standard library only: worker, harness and checker share it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from suite.contract import STEPS, BadData
from suite.contract.traits import storage_formats, traits_of

# Images per shard; ImageNet's training images fill 1,024 shards, as its published TFRecords do.
BATCHES: Mapping[str, tuple[int, ...]] = {"reference": (1252,), "mini": (20,)}
SPLITS = ("train", "val")

_MOST_VALIDATION_SHARDS = 128  # as in the published TFRecords
_FEWEST_IMAGES = 20  # of a validation shard


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard ``number`` of ``of`` of a split: its samples ``first`` to ``first + count - 1``."""

    split: str
    number: int
    of: int
    first: int
    count: int

    def name(self, storage_format: str) -> str:
        """The shard's name without an ending, such as ``train-00000-of-00016``."""
        split = "validation" if storage_format == "tfrecord" and self.split == "val" else self.split
        return f"{split}-{self.number:05d}-of-{self.of:05d}"

    def files(self, storage_format: str) -> tuple[str, ...]:
        """The shard's files, relative to the folder of shards: the data, then the index if there is one."""
        endings = traits_of(storage_formats()[storage_format]).storage_files
        return tuple(self.name(storage_format) + ending for ending in endings)


class Encoding(NamedTuple):
    """How a conversion encodes images again: each is resized to ``size`` x ``size`` pixels."""

    kind: str  # raw: rows of RGB; jpeg
    size: int


KINDS = ("raw", "jpeg")
LARGEST = 4096  # pixels
JPEG_QUALITY = 95  # as MXNet's im2rec and OpenCV
_ENCODING = re.compile(rf"({'|'.join(KINDS)})-([1-9][0-9]{{0,3}})")


def encoding_of(text: str) -> Encoding | None:
    """The encoding that ``text`` names (``raw-256``); None for ``file``: files stay unchanged. ValueError."""
    if text == "file":
        return None
    found = _ENCODING.fullmatch(text)
    if found is None or int(found[2]) > LARGEST:
        raise ValueError(f"expected file, raw-<pixels> or jpeg-<pixels>, of at most {LARGEST}, found {text}")
    return Encoding(found[1], int(found[2]))


def layout(images: Mapping[str, int], batch: int) -> tuple[Shard, ...]:
    """The shards of a dataset with ``images`` images by split, training first.

    A shard holds ``batch`` images. Validation shards hold fewer where the split still fits in 128 shards. The
    last shard of a split holds the rest.
    """
    return (
        *_shards("train", images["train"], batch),
        *_shards("val", images["val"], _validation_batch(images, batch)),
    )


def _validation_batch(images: Mapping[str, int], batch: int) -> int:
    """Images of a validation shard."""
    return min(batch, max(_FEWEST_IMAGES, -(-images["val"] // _MOST_VALIDATION_SHARDS)))


def _shards(split: str, images: int, batch: int) -> list[Shard]:
    of = -(-images // batch)
    return [Shard(split, at, of, at * batch, min(batch, images - at * batch)) for at in range(of)]


def too_small(images: Mapping[str, int], batch: int) -> str | None:
    """Why a dataset cannot be measured in shards of ``batch`` images, or None where it can.

    The steps of a repeat are the first 110 shards. All of them must be full: the units of work follow from
    the batch alone.
    """
    if not _incomplete(images, batch):
        return None
    largest = max((size for size in range(1, batch) if not _incomplete(images, size)), default=None)
    fix = f"; set batch={largest}" if largest else ""
    return f"expected {STEPS} shards of {batch} images, found {sum(images.values())} images in all{fix}"


def _incomplete(images: Mapping[str, int], batch: int) -> bool:
    """Whether one of the first 110 shards is missing or not full."""
    full, rest = divmod(images["train"], batch)
    missing = STEPS - full
    if missing <= 0:
        return False
    return rest > 0 or _validation_batch(images, batch) != batch or images["val"] // batch < missing


def read_list(folder: Path, split: str) -> list[tuple[str, str]]:
    """Digest and file of each image of ``split``, in the order of its list.

    A line is ``<sha256>  <split>/<class>/<file>``. BadData where the list is missing or a line is malformed.
    """
    try:
        lines = (folder / f"{split}.txt").read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise BadData(f"{split}.txt: expected a list of images, found none; prepare the dataset") from None
    for number, line in enumerate(lines, 1):
        if line[64:66] != "  " or not line.startswith(f"{split}/", 66) or line.count("/") != 2:
            raise BadData(f"{split}.txt: line {number}: expected a digest and {split}/class/file")
    return [(line[:64], line[66:]) for line in lines]


def files_digest(folder: Path, names: Iterable[str]) -> str:
    """SHA-256 over one line ``<sha256>  <name>`` for each of the files ``names`` in ``folder``, in order."""
    lines = hashlib.sha256()
    for name in names:
        content = hashlib.sha256()
        with (folder / name).open("rb") as stream:
            while chunk := stream.read(1 << 20):
                content.update(chunk)
        lines.update(f"{content.hexdigest()}  {name}\n".encode())
    return lines.hexdigest()
