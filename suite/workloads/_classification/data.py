"""The batches of the image classifiers: images read from disk, or one synthetic batch.

Training: a permutation of the images for each epoch, random crops and flips. Infer: the images of the
validation set in such an order, cut from the middle as the evaluation has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.common.image_reader import Batches, Item, Request, open_batches, reader_module
from suite.common.stream import Stream
from suite.contract import BadData, Data, Job
from suite.workloads._classification.sources import Files, Records, is_records
from suite.workloads.one_batch import OneBatch

Arrays = dict[str, NDArray[Any]]

EVALUATION_IMAGES = 100  # in a batch of the evaluation


def open_data(job: Job) -> Data:
    """The data of ``job``: ``images`` uint8 [batch, height, width, 3] and ``labels`` int32 [batch]."""
    return Synthetic(job) if job.key.data == "synthetic" else Images(job)


def decoder(job: Job) -> str | None:
    """What decodes the image files of ``job``: its version decides how they look after resizing.

    ImportError where it is not installed.
    """
    if is_records(Path(job.data_dir)):
        return None
    return cast("str", reader_module(job).DECODER)


class Images:
    """Images from ``job.data_dir``; the last batch of an epoch, where it is incomplete, is dropped.

    Every batch is a pure function of dataset, reader, seed and step. ``crop_area`` among the hyperparameters
    is the least share of an image file's area that training crops.
    """

    def __init__(self, job: Job) -> None:
        dims: Any = workloads.specification(job.key.workload).dimensions(job.key.scale, job.key.variant)
        folder, self._seed, self._size = Path(job.data_dir), job.seed, job.key.batch
        self._training = job.key.phase == "train"
        source: Records | Files
        if is_records(folder):
            source = Records(folder, dims.image, dims.classes, self._seed)
        else:
            least = float(job.hyper.get("crop_area", "0.08"))
            source = Files(folder, dims.image, dims.classes, least, self._seed)
        self._shape, self._every = source.shape, source.labels
        self._labels = source.labels["train" if self._training else "val"]
        self.steps_per_epoch = len(self._labels) // self._size
        if not self.steps_per_epoch:
            raise BadData(f"expected at least {self._size} images for a batch, found {len(self._labels)}")
        self._order = lru_cache(maxsize=3)(self._ordered)  # readers ahead of the steps may be in the next
        if isinstance(source, Records):
            self._batches = Batches(source, self._request)
        else:
            self._batches = open_batches(job, source, self._request)

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`."""
        return {"images": self._batches.of(step), "labels": self._labels[self._samples(step)[1]]}

    def _samples(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """The epoch, and the images of ``step`` in its order."""
        epoch, at = divmod(step, self.steps_per_epoch)
        return epoch, self._order(epoch)[at * self._size : (at + 1) * self._size]

    def _request(self, step: int) -> Request:
        epoch, samples = self._samples(step)
        if self._training:
            return Request(tuple(Item("train", sample, epoch) for sample in samples.tolist()), self._shape)
        return Request(tuple(Item("val", sample, None) for sample in samples.tolist()), self._shape)

    def _ordered(self, epoch: int) -> NDArray[np.int64]:
        return Stream("order", "classification", self._seed, epoch).permutation(len(self._labels))

    def evaluation(self) -> Iterator[Arrays]:
        """Every image of the validation set once, in its order: ``images`` and ``index`` int32 [n]."""
        count = len(self._every["val"])
        parts = [range(at, min(count, at + EVALUATION_IMAGES)) for at in range(0, count, EVALUATION_IMAGES)]
        requests = (Request(tuple(Item("val", at, None) for at in part), self._shape) for part in parts)
        for part, images in zip(parts, self._batches.all(requests), strict=True):
            yield {"images": images, "index": np.array(part, np.int32)}


class Synthetic(OneBatch):
    """One batch, the same for every seed: uniformly random pixels and labels."""

    def __init__(self, job: Job) -> None:
        dims: Any = workloads.specification(job.key.workload).dimensions(job.key.scale, job.key.variant)
        count, side = job.key.batch, dims.image
        size = count * side * side * 3
        words = Stream("synthetic", "images", side, *job.salt).bits(-(-size // 8)).astype("<u8")
        images = words.view(np.uint8)[:size].reshape(count, side, side, 3)
        labels = Stream("synthetic", "labels", dims.classes, *job.salt).integers(dims.classes, count)
        self._batch = {"images": images, "labels": labels.astype(np.int32)}

    def evaluation(self) -> Iterator[Arrays]:
        """Nothing to evaluate: ValueError."""
        raise ValueError("quality is measured on images: expected data=real, found data=synthetic")
