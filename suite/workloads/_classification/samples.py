"""Access to the encoded images of a dataset: one file per image, or shards of a storage format.

In both cases ``train.txt`` and ``val.txt`` list the images in order. A converted dataset has a file
``storage.json`` with the number of images in each shard, such as
``{"storage": "recordio", "shards": {"train": [20, 20], "val": [20]}}``.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from suite.contract import BadData
from suite.contract.traits import storage_formats
from suite.workloads import storage
from suite.workloads.storage import SPLITS, read_list

Labels = NDArray[np.int32]
Names = Mapping[str, Sequence[str]]

STORAGE = "storage.json"


class Shard(Protocol):
    """The ``count`` records of one shard. ``first`` is the position of its first image in the split."""

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        """Read the shard's index; BadData for an index that does not match."""

    def read(self, row: int, label: int) -> bytes:
        """The encoded image of record ``row``; BadData for a broken record or another label (from 0)."""


def shard_reader(storage_format: str) -> type[Shard]:
    """The reader of ``storage_format``: ``<framework>_shard.py`` of the framework that writes it."""
    module = import_module(f"suite.workloads._classification.{storage_formats()[storage_format]}_shard")
    return cast("type[Shard]", module.Shard)


class Samples(Protocol):
    """Encoded images by split and position; ``labels`` int32 [n] by split."""

    labels: Mapping[str, Labels]

    def content(self, split: str, sample: int) -> bytes:
        """The encoded image; BadData names file and record."""

    def file(self, split: str, sample: int) -> str | None:
        """The path of the file that holds only this image; None where the image is in a shard."""

    def name(self, split: str, sample: int) -> str:
        """File and record of the image, relative to the dataset, for messages."""


def open_samples(folder: Path, classes: int) -> Samples:
    """The images in ``folder``; BadData where they have more than ``classes`` classes or lists are broken."""
    names = {split: listed_files(folder, split) for split in SPLITS}
    labels = labels_of(names, classes)
    if (folder / STORAGE).exists():
        return Shards(folder, names, labels)
    return Files(folder, names, labels)


class Files:
    """One file per image. See :class:`Samples`."""

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
    """Images in shards, each of which is opened at its first use. See :class:`Samples`."""

    def __init__(self, folder: Path, names: Names, labels: Mapping[str, Labels]) -> None:
        self._folder, self._names, self.labels = folder, names, labels
        self._storage_format, counts = _read_storage(folder)
        self._ends = {split: list(accumulate(counts[split])) for split in SPLITS}
        for split in SPLITS:
            if (found := sum(counts[split])) != len(names[split]):
                raise BadData(
                    f"{STORAGE}: {split}: expected {len(names[split])} images as in {split}.txt, "
                    f"found {found}"
                )
        self._open: dict[tuple[str, int], Shard] = {}

    def content(self, split: str, sample: int) -> bytes:
        """See :class:`Samples`."""
        number, row = self._locate(split, sample)
        shard = self._open.get((split, number))
        if shard is None:  # two threads may both open it: the objects are equivalent
            first, name = sample - row, self._shard_name(split, number)
            count = self._ends[split][number] - first
            shard = shard_reader(self._storage_format)(self._folder, name, first, count)
            self._open[split, number] = shard
        return shard.read(row, int(self.labels[split][sample]))

    def file(self, split: str, sample: int) -> str | None:
        """See :class:`Samples`."""
        del split, sample
        return None

    def name(self, split: str, sample: int) -> str:
        """See :class:`Samples`."""
        number, row = self._locate(split, sample)
        return f"{self._shard_name(split, number)}: record {row} ({self._names[split][sample]})"

    def _locate(self, split: str, sample: int) -> tuple[int, int]:
        """The number of the shard that holds ``sample``, and the record within it."""
        ends = self._ends[split]
        number = bisect_right(ends, sample)
        return number, sample - (ends[number - 1] if number else 0)

    def _shard_name(self, split: str, number: int) -> str:
        """A shard's name without an ending."""
        return storage.Shard(split, number, len(self._ends[split]), 0, 0).name(self._storage_format)


def _read_storage(folder: Path) -> tuple[str, dict[str, list[int]]]:
    """The storage format, and the number of images of each shard by split."""
    try:
        content = json.loads((folder / STORAGE).read_text("utf-8"))
        storage_format = str(content["storage"])
        counts = {split: list(content["shards"][split]) for split in SPLITS}
    except (ValueError, KeyError, TypeError) as error:
        raise BadData(
            f"{STORAGE}: expected a storage format and its shards, found {error!r}; convert again"
        ) from error
    if storage_format not in storage_formats():
        raise BadData(f"{STORAGE}: expected one of {', '.join(storage_formats())}, found {storage_format!r}")
    for split in SPLITS:
        if not all(isinstance(count, int) and count > 0 for count in counts[split]):
            raise BadData(f"{STORAGE}: {split}: expected numbers of images, found {counts[split]!r:.80}")
    return storage_format, counts


def check_split(split: str, labels: Labels, found: int, classes: int, exactly: bool) -> None:
    """BadData for a split without images or with a wrong number of classes (``found``)."""
    if not len(labels):
        raise BadData(f"{split}: expected images, found none; prepare the dataset again")
    if found > classes or (exactly and found != classes):
        raise BadData(f"{split}: expected {classes} classes, found {found}; prepare the dataset again")


def labels_of(names: Names, classes: int) -> dict[str, Labels]:
    """The class of each image by split: the index of its folder in the sorted folder names of ``train``."""
    index = {name: at for at, name in enumerate(sorted({name.split("/")[1] for name in names["train"]}))}
    labels: dict[str, Labels] = {}
    for split, files in names.items():
        for name in files:
            if name.split("/")[1] not in index:
                raise BadData(f"{name}: expected a class that train has too; prepare the dataset again")
        labels[split] = np.array([index[name.split("/")[1]] for name in files], np.int32)
        check_split(split, labels[split], len(index), classes, exactly=False)
    return labels


def listed_files(folder: Path, split: str) -> list[str]:
    """The image files of ``split`` in the order of its list."""
    return [name for _, name in read_list(folder, split)]
