"""The batches of the image classifiers: images read from disk, or one synthetic batch.

Training: a permutation of the images for each epoch, random crops and flips. Infer: the images of the
validation set in such an order, cut from the middle as the evaluation has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.workloads._classification.augment import Draws
from suite.workloads._classification.prefetch import AHEAD, Pending, Prefetch
from suite.workloads._classification.sources import is_records, open_source
from suite.workloads.contract import BadData, Data, Job
from suite.workloads.stream import Stream

Arrays = dict[str, NDArray[Any]]

EVALUATION_IMAGES = 100  # in a batch of the evaluation


def open_data(job: Job) -> Data:
    """The data of ``job``: ``images`` uint8 [batch, height, width, 3] and ``labels`` int32 [batch]."""
    return Synthetic(job) if job.key.data == "synthetic" else Images(job)


def decoder(job: Job) -> str | None:
    """What decodes the image files of ``job``: its version decides how they look after resizing."""
    if is_records(Path(job.data_dir)):
        return None
    from suite.workloads.decoder import DECODER

    return DECODER


class Images:
    """Images from ``job.data_dir``; the last batch of an epoch, where it is incomplete, is dropped.

    Every batch is a pure function of dataset, seed and step. ``crop_area`` among the hyperparameters is the
    least share of an image file's area that training crops.
    """

    def __init__(self, job: Job) -> None:
        dims: Any = workloads.specification(job.key.workload).dimensions(job.key.scale, job.key.variant)
        least = float(job.hyper.get("crop_area", "0.08"))
        self._source = open_source(Path(job.data_dir), dims.image, dims.classes, least)
        self._side, self._size, self._seed = dims.image, job.key.batch, job.seed
        self._training = job.key.phase == "train"
        self._labels = self._source.labels["train" if self._training else "val"]
        self.steps_per_epoch = len(self._labels) // self._size
        if not self.steps_per_epoch:
            raise BadData(f"expected at least {self._size} images for a batch, found {len(self._labels)}")
        self._pool = ThreadPoolExecutor(max(1, job.threads)) if self._source.slow else None
        self._ahead = Prefetch(self._start, AHEAD if self._pool else 0)
        self._orders: dict[int, NDArray[np.int64]] = {}

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.workloads.contract.Data`."""
        return self._ahead.batch(step)

    def _start(self, step: int) -> Pending:
        epoch, at = divmod(step, self.steps_per_epoch)
        samples = self._order(epoch)[at * self._size : (at + 1) * self._size]
        images = np.empty((self._size, self._side, self._side, 3), np.uint8)

        def read(place: int) -> NDArray[np.uint8]:
            sample = int(samples[place])
            if not self._training:
                return self._source.evaluation(sample)
            return self._source.training(sample, Draws.of(self._seed, epoch, sample))

        return Pending(self._pool, {"images": images, "labels": self._labels[samples]}, read)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._orders:
            # Two are kept, since batches ahead of the steps may be of the next epoch.
            self._orders = {old: self._orders[old] for old in sorted(self._orders)[-1:]}
            stream = Stream("order", "classification", self._seed, epoch)
            self._orders[epoch] = stream.permutation(len(self._labels))
        return self._orders[epoch]

    def evaluation(self) -> Iterator[Arrays]:
        """Every image of the validation set once, in its order: ``images`` and ``index`` int32 [n]."""
        count = len(self._source.labels["val"])

        def start(step: int) -> Pending:
            index = np.arange(step * EVALUATION_IMAGES, min(count, (step + 1) * EVALUATION_IMAGES))
            images = np.empty((len(index), self._side, self._side, 3), np.uint8)
            arrays: Arrays = {"images": images, "index": index.astype(np.int32)}
            return Pending(self._pool, arrays, lambda place: self._source.evaluation(int(index[place])))

        ahead = Prefetch(start, AHEAD if self._pool else 0)
        return ahead.all(-(-count // EVALUATION_IMAGES))


class Synthetic:
    """One batch, the same for every seed: uniformly random pixels and labels."""

    steps_per_epoch = 1

    def __init__(self, job: Job) -> None:
        dims: Any = workloads.specification(job.key.workload).dimensions(job.key.scale, job.key.variant)
        count, side = job.key.batch, dims.image
        size = count * side * side * 3
        words = Stream("synthetic", "images", side).bits(-(-size // 8)).astype("<u8")
        images = words.view(np.uint8)[:size].reshape(count, side, side, 3)
        labels = Stream("synthetic", "labels", dims.classes).integers(dims.classes, count)
        self._batch: Arrays = {"images": images, "labels": labels.astype(np.int32)}

    def slot(self, step: int) -> int:
        """Always the only batch."""
        del step
        return 0

    def batch(self, step: int) -> Arrays:
        """The only batch, whatever ``step``."""
        del step
        return dict(self._batch)

    def evaluation(self) -> Iterator[Arrays]:
        """Nothing to evaluate: ValueError."""
        raise ValueError("quality is measured on images: expected data=real, found data=synthetic")
