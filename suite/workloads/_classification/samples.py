"""Where the encoded pictures of a dataset lie: a file each, or many in the shards of a storage format.

In either case ``train.txt`` and ``val.txt`` list the pictures in their order. A converted dataset has a file
``storage.json``, such as ``{"storage": "recordio", "shards": {"train": [20, 20], "val": [20]}}``: how many
images each shard holds.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from suite.contract import BadData
from suite.workloads._classification import lmdb_shard, recordio, tfrecord
from suite.workloads.storage import read_list

Labels = NDArray[np.int32]
Names = Mapping[str, Sequence[str]]

SPLITS = ("train", "val")
STORAGE = "storage.json"


class Shard(Protocol):
    """The records of one shard. ``first`` is the place of its first picture in the split."""

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        """Read its index; BadData where that is not as it should be."""

    def read(self, row: int, label: int) -> bytes:
        """The encoded picture of record ``row``; BadData, also where its label is not ``label`` (from 0)."""


STORAGE_FORMATS: Mapping[str, type[Shard]] = {
    "recordio": recordio.Shard,
    "tfrecord": tfrecord.Shard,
    "lmdb": lmdb_shard.Shard,
}


class Samples(Protocol):
    """Encoded pictures by split and place; ``labels`` int32 [n] by split."""

    labels: Mapping[str, Labels]

    def content(self, split: str, sample: int) -> bytes:
        """The encoded picture; BadData names file and record."""

    def file(self, split: str, sample: int) -> str | None:
        """The file that holds this picture alone; None where it lies in a shard."""

    def name(self, split: str, sample: int) -> str:
        """File and record of the picture, within the dataset."""


def open_samples(folder: Path, classes: int) -> Samples:
    """The pictures in ``folder``, of ``classes`` classes at most; BadData."""
    names = {split: listed(folder, split) for split in SPLITS}
    labels = labels_of(names, classes)
    if (folder / STORAGE).exists():
        return Shards(folder, names, labels)
    return Files(folder, names, labels)


class Files:
    """A file for each picture. See :class:`Samples`."""

    def __init__(self, folder: Path, names: Names, labels: Mapping[str, Labels]) -> None:
        self._folder, self._names, self.labels = folder, names, labels

    def content(self, split: str, sample: int) -> bytes:
        """See :class:`Samples`."""
        name = self._names[split][sample]
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{name}: expected an image, found no such file") from None

    def file(self, split: str, sample: int) -> str | None:
        """See :class:`Samples`."""
        return f"{self._folder}/{self._names[split][sample]}"

    def name(self, split: str, sample: int) -> str:
        """See :class:`Samples`."""
        return self._names[split][sample]


class Shards:
    """Pictures in shards, each of which is opened when first read from. See :class:`Samples`."""

    def __init__(self, folder: Path, names: Names, labels: Mapping[str, Labels]) -> None:
        self._folder, self._names, self.labels = folder, names, labels
        self._storage_format, counts = _storage_format(folder)
        self._ends = {split: list(accumulate(counts[split])) for split in SPLITS}
        for split, ends in self._ends.items():
            if (found := ends[-1] if ends else 0) != len(names[split]):
                raise BadData(
                    f"{STORAGE}: {split}: expected {len(names[split])} images as in {split}.txt, "
                    f"found {found}"
                )
        self._open: dict[tuple[str, int], Shard] = {}

    def content(self, split: str, sample: int) -> bytes:
        """See :class:`Samples`."""
        number, row = self._place(split, sample)
        shard = self._open.get((split, number))
        if shard is None:  # two threads may both open it, and agree
            ends = self._ends[split]
            first = ends[number - 1] if number else 0
            name = self._shard(split, number)
            shard = STORAGE_FORMATS[self._storage_format](self._folder, name, first, ends[number] - first)
            self._open[split, number] = shard
        return shard.read(row, int(self.labels[split][sample]))

    def file(self, split: str, sample: int) -> str | None:
        """See :class:`Samples`."""
        del split, sample
        return None

    def name(self, split: str, sample: int) -> str:
        """See :class:`Samples`."""
        number, row = self._place(split, sample)
        return f"{self._shard(split, number)}: record {row} ({self._names[split][sample]})"

    def _place(self, split: str, sample: int) -> tuple[int, int]:
        """Shard, and place in it."""
        ends = self._ends[split]
        number = bisect_right(ends, sample)
        return number, sample - (ends[number - 1] if number else 0)

    def _shard(self, split: str, number: int) -> str:
        """A shard's name without ending; the world's TFRecords of ImageNet write validation out."""
        word = "validation" if self._storage_format == "tfrecord" and split == "val" else split
        return f"{word}-{number:05d}-of-{len(self._ends[split]):05d}"


def _storage_format(folder: Path) -> tuple[str, dict[str, list[int]]]:
    """The storage format, and the pictures of each shard by split."""
    try:
        told = json.loads((folder / STORAGE).read_text("utf-8"))
        storage_format, counts = (
            str(told["storage"]),
            {split: list(told["shards"][split]) for split in SPLITS},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadData(
            f"{STORAGE}: expected a storage format and its shards, found {error!r}; convert again"
        ) from error
    if storage_format not in STORAGE_FORMATS:
        raise BadData(f"{STORAGE}: expected one of {', '.join(STORAGE_FORMATS)}, found {storage_format!r}")
    for split in SPLITS:
        if not all(isinstance(count, int) and count > 0 for count in counts[split]):
            raise BadData(
                f"{STORAGE}: {split}: expected the pictures of each shard, found {counts[split]!r:.80}"
            )
    return storage_format, counts


def check_split(split: str, labels: Labels, found: int, classes: int, exactly: bool) -> None:
    """BadData for a split without images, or with another number of classes."""
    if not len(labels):
        raise BadData(f"{split}: expected images, found none; prepare the dataset again")
    if found > classes or (exactly and found != classes):
        raise BadData(f"{split}: expected {classes} classes, found {found}; prepare the dataset again")


def labels_of(names: Names, classes: int) -> dict[str, Labels]:
    """The class of each picture by split: the place of its folder in the order of names."""
    known = sorted({name.split("/")[1] for name in names["train"]})
    place = {group: at for at, group in enumerate(known)}
    found: dict[str, Labels] = {}
    for split, files in names.items():
        for name in files:
            if name.split("/")[1] not in place:
                raise BadData(f"{name}: expected a class that train has too; prepare the dataset again")
        found[split] = np.array([place[name.split("/")[1]] for name in files], np.int32)
        check_split(split, found[split], len(known), classes, exactly=False)
    return found


def listed(folder: Path, split: str) -> list[str]:
    """The files of one list."""
    return [name for _, name in read_list(folder, split)]
