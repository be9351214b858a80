"""The batches of the image classifiers: images read from disk, or one synthetic batch.

Training reads a permutation of the training images in each epoch, randomly cropped and flipped. Inference
reads a permutation of the validation images, with the centre crops of the evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.common.image_reader import Batches, Item, Request, open_batches, reader_module, stored_bytes
from suite.common.stream import Stream
from suite.contract import BadData, Data, Job
from suite.workloads._classification.sources import Files, Records, is_records
from suite.workloads.one_batch import OneBatch, random_bytes

Arrays = dict[str, NDArray[Any]]

EVALUATION_IMAGES = 100  # per batch of the evaluation


def open_data(job: Job) -> Data:
    """The data of ``job``: ``images`` uint8 [batch, height, width, 3] and ``labels`` int32 [batch]."""
    return Synthetic(job) if job.key.data == "synthetic" else Images(job)


def decoder(job: Job) -> str | None:
    """Name and version of the image decoder of ``job``, on which pixel values depend; None for raw pixels.

    ImportError where the decoder is not installed.
    """
    if is_records(Path(job.data_dir)):
        return None
    return cast("str", reader_module(job).DECODER)


class Images:
    """Images from ``job.data_dir``; an incomplete last global batch of an epoch is dropped.

    Every batch is a pure function of dataset, reader, seed and step. The hyperparameter ``crop_area`` is the
    smallest share of an image's area that a training crop covers.
    """

    def __init__(self, job: Job) -> None:
        dims: Any = workloads.specification(job.key.workload).dimensions(job.key.scale, job.key.variant)
        folder, self._seed = Path(job.data_dir), job.seed
        self._size, self._rows = job.global_batch, job.rows
        self._training = job.key.phase == "train"
        source: Records | Files
        if is_records(folder):
            source = Records(folder, dims.image, dims.classes, self._seed)
        else:
            least_area = float(job.hyper.get("crop_area", "0.08"))
            source = Files(folder, dims.image, dims.classes, least_area, self._seed)
        self._source, self._shape, self._all_labels = source, source.shape, source.labels
        self._labels = source.labels["train" if self._training else "val"]
        self.steps_per_epoch = len(self._labels) // self._size
        if not self.steps_per_epoch:
            raise BadData(
                f"expected at least {self._size} images for a global batch, found {len(self._labels)}"
            )
        self._order = lru_cache(maxsize=3)(self._permutation)  # a reader may be an epoch ahead of the steps
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

    def stored_bytes(self, step: int) -> int:
        """See :class:`suite.contract.ImageData`; TypeError for CIFAR-10's records, which no load reads."""
        if isinstance(self._source, Records):
            raise TypeError("expected image files, found records of pixels")
        return stored_bytes(self._source, self._request(step))

    def _samples(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """The epoch of ``step``, and the positions of the rank's images in the split."""
        epoch, at = divmod(step, self.steps_per_epoch)
        return epoch, self._order(epoch)[at * self._size : (at + 1) * self._size][self._rows]

    def _request(self, step: int) -> Request:
        epoch, samples = self._samples(step)
        split, drawn = ("train", epoch) if self._training else ("val", None)
        return Request(tuple(Item(split, sample, drawn) for sample in samples.tolist()), self._shape)

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        return Stream("order", "classification", self._seed, epoch).permutation(len(self._labels))

    def evaluation(self) -> Iterator[Arrays]:
        """Every validation image once, in the order of the list: ``images`` and ``index`` int32 [n]."""
        count = len(self._all_labels["val"])
        parts = [range(at, min(count, at + EVALUATION_IMAGES)) for at in range(0, count, EVALUATION_IMAGES)]
        requests = (Request(tuple(Item("val", at, None) for at in part), self._shape) for part in parts)
        for part, images in zip(parts, self._batches.all(requests), strict=True):
            yield {"images": images, "index": np.array(part, np.int32)}


class Synthetic(OneBatch):
    """One batch of uniformly random pixels and labels, the same for every seed."""

    def __init__(self, job: Job) -> None:
        dims: Any = workloads.specification(job.key.workload).dimensions(job.key.scale, job.key.variant)
        count, side = job.key.batch, dims.image
        images = random_bytes((count, side, side, 3), job.rows.start, "synthetic", "images", side, *job.salt)
        stream = Stream("synthetic", "labels", dims.classes, *job.salt)
        labels = stream.integers(dims.classes, count, job.rows.start)
        self._batch = {"images": images, "labels": labels.astype(np.int32)}
