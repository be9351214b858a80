"""The batches of the image classifiers: images read from disk, or one synthetic batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.workloads.contract import Data, Job
from suite.workloads.stream import Stream

Arrays = dict[str, NDArray[Any]]


def open_data(job: Job) -> Data:
    """The data of ``job``: ``images`` uint8 [batch, height, width, 3] and ``labels`` int32 [batch]."""
    if job.key.data != "synthetic":
        raise NotImplementedError
    return Synthetic(job)


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
