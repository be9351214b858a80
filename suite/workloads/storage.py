"""The storage formats into which a folder of pictures can be converted, and how it is cut into shards.

Standard library only: worker, harness and checker share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from suite.contract import STEPS, BadData

# Pictures of a shard; ImageNet's training pictures fill 1,024 shards, as its published TFRecords do.
BATCHES: Mapping[str, tuple[int, ...]] = {"reference": (1252,), "mini": (20,)}
SPLITS = ("train", "val")

_MOST_VALIDATION_SHARDS = 128  # of the published TFRecords too
_FEWEST_PICTURES = 20
_ENDINGS = {
    "recordio": (".rec", ".idx"),
    "tfrecord": (".tfrecord", ".tfrecord.idx"),
    "lmdb": (".lmdb/data.mdb",),
}


@dataclass(frozen=True, slots=True)
class Shard:
    """The samples ``first`` to ``first + count - 1`` of ``split``: number ``number`` of ``of`` shards."""

    split: str
    number: int
    of: int
    first: int
    count: int

    def name(self, storage_format: str) -> str:
        """Its name without an ending, such as ``train-00000-of-00016``."""
        split = "validation" if storage_format == "tfrecord" and self.split == "val" else self.split
        return f"{split}-{self.number:05d}-of-{self.of:05d}"

    def files(self, storage_format: str) -> tuple[str, ...]:
        """Its files, within the folder of all shards: the data first, then an index where there is one."""
        return tuple(self.name(storage_format) + ending for ending in _ENDINGS[storage_format])


def layout(pictures: Mapping[str, int], batch: int) -> tuple[Shard, ...]:
    """The shards of a dataset of ``pictures`` by split, training first.

    ``batch`` pictures make a shard; of validation, fewer where that gives no more than 128 shards. The last
    shard of a split holds the rest.
    """
    return (
        *_cut("train", pictures["train"], batch),
        *_cut("val", pictures["val"], _validation(pictures, batch)),
    )


def _validation(pictures: Mapping[str, int], batch: int) -> int:
    """Pictures of a validation shard."""
    return min(batch, max(_FEWEST_PICTURES, -(-pictures["val"] // _MOST_VALIDATION_SHARDS)))


def _cut(split: str, pictures: int, each: int) -> list[Shard]:
    of = -(-pictures // each)
    return [Shard(split, at, of, at * each, min(each, pictures - at * each)) for at in range(of)]


def too_small(pictures: Mapping[str, int], batch: int) -> str | None:
    """Why a dataset cannot be measured in shards of ``batch`` pictures, or None where it can.

    The steps of a repeat are the first 110 shards, each of them full, so that everybody can count the work.
    """
    if not _short(pictures, batch):
        return None
    most = max((size for size in range(1, batch) if not _short(pictures, size)), default=None)
    hint = f"; batch={most} would do" if most else ""
    return (
        f"expected {STEPS} shards of {batch} pictures, found {sum(pictures.values())} pictures in all{hint}"
    )


def _short(pictures: Mapping[str, int], batch: int) -> bool:
    """Whether one of the first 110 shards is not full, or not there."""
    full, rest = divmod(pictures["train"], batch)
    missing = STEPS - full
    if missing <= 0:
        return False
    return rest > 0 or _validation(pictures, batch) != batch or pictures["val"] // batch < missing


def read_list(folder: Path, split: str) -> list[tuple[str, str]]:
    """Digest and file of each picture of ``split``, from its list, whose lines are ``<sha256>  <file>``.

    BadData where there is no list, or a line is another.
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
    """SHA-256 over lines ``<sha256>  <name>`` of the files ``names`` of ``folder``, in their order."""
    lines = hashlib.sha256()
    for name in names:
        content = hashlib.sha256()
        with (folder / name).open("rb") as stream:
            while chunk := stream.read(1 << 20):
                content.update(chunk)
        lines.update(f"{content.hexdigest()}  {name}\n".encode())
    return lines.hexdigest()
