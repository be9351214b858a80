"""Where labelled images come from: CIFAR-10's binary records, or folders of image files with lists.

Each source gives one image at a time, as the network takes it: for training with a random crop and flip, for
evaluation from the middle. BadData names the file and the record that are not as the format promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from suite.workloads._classification.augment import Draws, random_resized_crop, short_side
from suite.workloads.contract import BadData

U8 = NDArray[np.uint8]
Labels = NDArray[np.int32]

CIFAR = "cifar-10-batches-bin"
_TRAIN = tuple(f"{CIFAR}/data_batch_{number}.bin" for number in range(1, 6))
_VAL = (f"{CIFAR}/test_batch.bin",)
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE
_PADDING = 4


class Source(Protocol):
    """``labels`` by split, ``train`` and ``val``; a sample is a place in its split.

    ``slow`` where reading an image is worth a thread.
    """

    labels: dict[str, Labels]
    slow: bool

    def training(self, sample: int, draws: Draws) -> U8:
        """Image ``sample`` of ``train`` [side, side, 3], cropped and flipped as ``draws`` say."""

    def evaluation(self, sample: int) -> U8:
        """Image ``sample`` of ``val`` [side, side, 3]."""


def is_records(folder: Path) -> bool:
    """Whether ``folder`` holds CIFAR-10's binary form; else it holds image files."""
    return (folder / CIFAR).is_dir()


def open_source(folder: Path, side: int, classes: int, least_area: float) -> Source:
    """The dataset in ``folder`` for a network of ``side`` pixels and ``classes`` classes."""
    if is_records(folder):
        return Records(folder, side, classes)
    return Files(folder, side, classes, least_area)


def check_split(split: str, labels: Labels, found: int, classes: int, exactly: bool) -> None:
    """BadData for a split without images, or with another number of classes."""
    if not len(labels):
        raise BadData(f"{split}: expected images, found none; prepare the dataset again")
    if found > classes or (exactly and found != classes):
        raise BadData(f"{split}: expected {classes} classes, found {found}; prepare the dataset again")


def validation_labels(folder: Path, classes: int) -> Labels:
    """The labels of ``val`` [n], for the host that scores: no image is opened."""
    if is_records(folder):
        return np.concatenate([_records(folder, name, classes)[:, 0] for name in _VAL]).astype(np.int32)
    return _labels({split: _listed(folder, split) for split in ("train", "val")}, classes)["val"]


class Records:
    """CIFAR-10's binary form: records of a label and 3,072 bytes, channels first; all of it in memory.

    Training takes a random square out of the image, which has a black border of four pixels where the network
    takes all 32 of its own (He et al., CVPR 2016, section 4.2); evaluation takes the middle.
    """

    slow = False

    def __init__(self, folder: Path, side: int, classes: int) -> None:
        if not 0 < side <= _SIDE:
            raise ValueError(f"{CIFAR}: expected a network of at most {_SIDE} pixels, found {side}")
        self._side, self._padding = side, _PADDING if side == _SIDE else 0
        self.labels: dict[str, Labels] = {}
        self._images: dict[str, U8] = {}
        for split, names in (("train", _TRAIN), ("val", _VAL)):
            records = np.concatenate([_records(folder, name, classes) for name in names])
            labels = records[:, 0].astype(np.int32)
            check_split(split, labels, len(np.unique(labels)), classes, exactly=True)
            images = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
            self.labels[split] = labels
            self._images[split] = np.ascontiguousarray(images.transpose(0, 2, 3, 1))

    def training(self, sample: int, draws: Draws) -> U8:
        """See :class:`Source`."""
        flipped = draws.below(2)
        places = _SIDE + 2 * self._padding - self._side + 1
        down, right = (draws.below(places) - self._padding for _ in range(2))
        cut = self._cut(self._images["train"][sample], down, right)
        return cut[:, ::-1] if flipped else cut

    def _cut(self, image: U8, down: int, right: int) -> U8:
        if not self._padding:
            return image[down : down + self._side, right : right + self._side]
        cut = np.zeros((self._side, self._side, 3), np.uint8)
        rows, columns = (slice(max(0, -at), min(self._side, _SIDE - at)) for at in (down, right))
        cut[rows, columns] = image[max(0, down) : down + self._side, max(0, right) : right + self._side]
        return cut

    def evaluation(self, sample: int) -> U8:
        """See :class:`Source`."""
        edge = (_SIDE - self._side) // 2
        return self._images["val"][sample, edge : edge + self._side, edge : edge + self._side]


def _records(folder: Path, name: str, classes: int) -> U8:
    try:
        content = np.fromfile(folder / name, np.uint8)
    except FileNotFoundError:
        raise BadData(f"{name}: expected a file of records, found none; prepare the dataset again") from None
    if len(content) % _RECORD:
        raise BadData(
            f"{name}: expected records of {_RECORD} bytes, found {len(content) % _RECORD} bytes as "
            f"record {len(content) // _RECORD}; prepare the dataset again"
        )
    records = content.reshape(-1, _RECORD)
    wrong = np.flatnonzero(records[:, 0] >= classes)
    if len(wrong):
        raise BadData(
            f"{name}: record {wrong[0]}: expected a label in 0..{classes - 1}, found {records[wrong[0], 0]}; "
            f"prepare the dataset again"
        )
    return records


class Files:
    """Image files in a folder for each class, as the lists ``train.txt`` and ``val.txt`` name them.

    A class is the place of its folder in the order of names. Resizing is bilinear with antialiasing.
    """

    slow = True

    def __init__(self, folder: Path, side: int, classes: int, least_area: float) -> None:
        self._folder, self._side, self._least = folder, side, least_area
        self._names = {split: _listed(folder, split) for split in ("train", "val")}
        self.labels = _labels(self._names, classes)

    def training(self, sample: int, draws: Draws) -> U8:
        """See :class:`Source`."""
        from PIL import Image

        picture = self._open("train", sample)
        flipped = draws.below(2)
        box = random_resized_crop(picture.width, picture.height, draws, self._least)
        # Cut first: resizing with a box would look beyond its edges.
        part = picture.crop(box).resize((self._side, self._side), Image.Resampling.BILINEAR)
        pixels = np.asarray(part)
        return pixels[:, ::-1] if flipped else pixels

    def evaluation(self, sample: int) -> U8:
        """See :class:`Source`."""
        from PIL import Image

        picture = self._open("val", sample)
        short = short_side(self._side)
        shorter = min(picture.width, picture.height)
        wide, high = short * picture.width // shorter, short * picture.height // shorter
        pixels = np.asarray(picture.resize((wide, high), Image.Resampling.BILINEAR))
        left, upper = (wide - self._side) // 2, (high - self._side) // 2
        return pixels[upper : upper + self._side, left : left + self._side]

    def _open(self, split: str, sample: int) -> Any:
        from suite.workloads.decoder import decode

        name = self._names[split][sample]
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{name}: expected an image, found no such file") from None
        return decode(content, name)


def _labels(names: Mapping[str, Sequence[str]], classes: int) -> dict[str, Labels]:
    """The class of each file by split."""
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


def _listed(folder: Path, split: str) -> list[str]:
    """The files of one list, whose lines are ``<sha256>  <file>``."""
    try:
        lines = (folder / f"{split}.txt").read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise BadData(f"{split}.txt: expected a list of images, found none; prepare the dataset") from None
    for number, line in enumerate(lines, 1):
        if line[64:66] != "  " or not line.startswith(f"{split}/", 66) or line.count("/") != 2:
            raise BadData(f"{split}.txt: line {number}: expected a digest and {split}/class/file")
    return [line[66:] for line in lines]
