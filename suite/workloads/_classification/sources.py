"""Sources of labelled images: CIFAR-10's binary records, or folders of image files with lists.

Training crops and flips each image at random, evaluation takes the centre. BadData names the file and the
record that violate the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from suite.common.image_reader import U8, Item, Request, View
from suite.contract import BadData
from suite.workloads._classification.augment import Draws, random_resized_crop, short_side
from suite.workloads._classification.samples import (
    Labels,
    check_split,
    labels_of,
    listed_files,
    open_samples,
)
from suite.workloads.storage import SPLITS

CIFAR = "cifar-10-batches-bin"
_TRAIN = tuple(f"{CIFAR}/data_batch_{number}.bin" for number in range(1, 6))
_VAL = (f"{CIFAR}/test_batch.bin",)
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE
_PADDING = 4


def is_records(folder: Path) -> bool:
    """Whether ``folder`` holds CIFAR-10's binary records; otherwise it holds image files."""
    return (folder / CIFAR).is_dir()


def validation_labels(folder: Path, classes: int) -> Labels:
    """The labels of ``val`` [n], for scoring on the host; opens no image."""
    if is_records(folder):
        return np.concatenate([_records(folder, name, classes)[:, 0] for name in _VAL]).astype(np.int32)
    return labels_of({split: listed_files(folder, split) for split in SPLITS}, classes)["val"]


class Records:
    """CIFAR-10's binary records (a label and 3,072 bytes, channels first), all in memory.

    Training crops a random square; a network with 32-pixel inputs gets crops of the image with a black border
    of four pixels (He et al., CVPR 2016, section 4.2). Evaluation crops the centre.
    """

    def __init__(self, folder: Path, side: int, classes: int, seed: int) -> None:
        if not 0 < side <= _SIDE:
            raise ValueError(f"{CIFAR}: expected a network of at most {_SIDE} pixels, found {side}")
        self._side, self._padding = side, _PADDING if side == _SIDE else 0
        self._seed, self.shape = seed, (side, side)
        self.labels: dict[str, Labels] = {}
        self._images: dict[str, U8] = {}
        for split, names in (("train", _TRAIN), ("val", _VAL)):
            records = np.concatenate([_records(folder, name, classes) for name in names])
            labels = records[:, 0].astype(np.int32)
            check_split(split, labels, len(np.unique(labels)), classes, exactly=True)
            images = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
            self.labels[split] = labels
            self._images[split] = np.ascontiguousarray(images.transpose(0, 2, 3, 1))

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`; reads nothing ahead: the images are in memory."""
        for request in requests:
            yield np.stack([self._image(item) for item in request.items])

    def _image(self, item: Item) -> U8:
        if item.epoch is None:
            return self.evaluation(item.sample)
        return self.training(item.sample, Draws.of(self._seed, item.epoch, item.sample))

    def training(self, sample: int, draws: Draws) -> U8:
        """Image ``sample`` of ``train`` [side, side, 3], cropped and flipped by ``draws``."""
        flipped = draws.below(2)
        offsets = _SIDE + 2 * self._padding - self._side + 1
        down, right = (draws.below(offsets) - self._padding for _ in range(2))
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
        """Image ``sample`` of ``val`` [side, side, 3]."""
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
    """Image files in a folder per class, or the same images in shards (:mod:`samples`), resized to ``shape``.

    See :class:`suite.common.image_reader.Images`. A class is the index of its folder in the sorted names.
    """

    fill = (0, 0, 0)  # unused: no view reaches beyond an image's edges

    def __init__(self, folder: Path, side: int, classes: int, least_area: float, seed: int) -> None:
        self._samples = open_samples(folder, classes)
        self._side, self._least, self._seed = side, least_area, seed
        self.labels, self.shape = self._samples.labels, (side, side)

    def content(self, item: Item) -> bytes:
        """See :class:`suite.common.image_reader.Images`."""
        return self._samples.content(item.split, item.sample)

    def file(self, item: Item) -> str | None:
        """See :class:`suite.common.image_reader.Images`."""
        return self._samples.file(item.split, item.sample)

    def name(self, item: Item) -> str:
        """See :class:`suite.common.image_reader.Images`."""
        return self._samples.name(item.split, item.sample)

    def view(self, item: Item, width: int, height: int) -> View:
        """Training: a random part, flipped at random; otherwise the centre after resizing the short side."""
        if item.epoch is not None:
            draws = Draws.of(self._seed, item.epoch, item.sample)
            flipped = bool(draws.below(2))
            box = random_resized_crop(width, height, draws, self._least)
            return View(box, self.shape, (0, 0), flipped)
        short, shorter = short_side(self._side), min(width, height)
        wide, high = short * width // shorter, short * height // shorter
        corner = ((wide - self._side) // 2, (high - self._side) // 2)
        return View((0, 0, width, height), (wide, high), corner, False)
