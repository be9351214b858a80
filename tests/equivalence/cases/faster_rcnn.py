"""Faster R-CNN at mini scale: random images and objects, different in each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.contract import Job
from suite.workloads.faster_rcnn import data, spec
from tests.equivalence.case import Case

Arrays = dict[str, NDArray[Any]]


class Batches:
    """Random pixels and objects; the last image of a batch is smaller than the batch."""

    steps_per_epoch = 1000

    def __init__(self, job: Job) -> None:
        self._dims, self._count = spec.dimensions(job.key.scale, job.key.variant), job.key.batch
        if job.key.scale == "reference":
            # An untrained head gives 91 classes about equal probabilities: none would be a detection.
            spec.LEAST_SCORE = 0.5 / self._dims.classes

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """The arrays of ``step``; in every second step one image has no object."""
        arrays = data.random_batch(self._dims, self._count, self._dims.objects, "test", step)
        arrays["sizes"][-1] *= 0.75
        arrays["boxes"][-1] *= 0.75
        # Tiny objects that overlap many anchors equally: there are more positive anchors than are sampled.
        for row in range(3):
            corner = 20 + 23 * row
            arrays["boxes"][-1, row] = corner, corner, corner + 1, corner + 1
            arrays["labels"][-1, row] = 1 + row
        if step % 2 and self._count > 1:
            arrays["labels"][0] = 0
            arrays["boxes"][0] = 0
        return arrays

    def evaluation(self) -> Iterator[Arrays]:
        """One batch."""
        yield evaluation(self._dims)


def evaluation(dims: spec.Dimensions) -> Arrays:
    """Three images."""
    arrays = data.random_batch(dims, 3, 1, "test", "evaluation")
    return {name: arrays[name] for name in ("images", "sizes")} | {"image": np.array([5, 7, 9], np.int64)}


CASE = Case(
    workload="faster_rcnn",
    variant="r50-fpn",
    batch=2,
    evaluation=evaluation,
    predicted={"boxes": (3, -1, 4), "scores": (3, -1), "labels": (3, -1), "image": (3,)},
    hyper={"warmup_steps": "0", "clip": "1"},
    data=Batches,
    columns={"boxes": np.s_[..., :4], "scores": np.s_[..., 4], "labels": np.s_[..., 5]},
    reference={"r50-fpn": 1},
    optimised=True,
)
