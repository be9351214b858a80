"""Random images, different in each step, for the cases of the classifiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.common.stream import Stream
from suite.contract import Job
from tests.equivalence.case import Case

Arrays = dict[str, NDArray[Any]]


def photographs(count: int, side: int, *key: str | int) -> NDArray[np.uint8]:
    """Images [count, side, side, 3]: a colour per image, blocks of 8 pixels on it, and noise."""
    blocks = -(-side // 8)

    def draw(purpose: str, bound: int, *shape: int) -> NDArray[np.int64]:
        return Stream("test", purpose, *key).integers(bound, int(np.prod(shape))).reshape(shape)

    colour = draw("colour", 128, count, 1, 1, 3)
    coarse = draw("blocks", 64, count, blocks, blocks, 3).repeat(8, axis=1).repeat(8, axis=2)
    noise = draw("noise", 64, count, side, side, 3)
    return (colour + coarse[:, :side, :side] + noise).astype(np.uint8)


class Batches:
    """Random images and labels."""

    steps_per_epoch = 1000

    def __init__(self, job: Job) -> None:
        spec: Any = workloads.specification(job.key.workload)
        self._dims, self._count = spec.dimensions(job.key.scale, job.key.variant), job.key.batch

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """Images and labels of ``step``."""
        labels = Stream("test", "labels", step).integers(self._dims.classes, self._count)
        images = photographs(self._count, self._dims.image, step)
        return {"images": images, "labels": labels.astype(np.int32)}

    def evaluation(self) -> Iterator[Arrays]:
        """One batch."""
        yield evaluation(self._dims)


def evaluation(dims: Any) -> Arrays:
    """Three images, not in their order."""
    return {"images": photographs(3, dims.image, "evaluation"), "index": np.array([2, 0, 1], np.int32)}


def case(workload: str, batch: int, variant: str = "v1", reference: int = 4, **options: Any) -> Case:
    """The case of a classifier: large weight decay, smoothing on, dropout off, clipping active.

    ``reference`` is the batch at the published size: four photographs of 224 pixels leave 196 positions to
    the last normalisations of a residual network.
    """
    spec: Any = workloads.specification(workload)
    columns = min(5, spec.SIZES["mini"].classes)
    hyper: Mapping[str, str] = {
        "rate": "0.01",
        "weight_decay": "0.01",
        "smoothing": "0.1",
        "dropout": "0",
        "warmup_steps": "0",
        "cosine_steps": "0",
        "clip": "0.1",
    }
    return Case(
        workload=workload,
        variant=variant,
        batch=batch,
        evaluation=evaluation,
        predicted={"top5": (3, columns), "index": (3,)},
        hyper=hyper,
        data=Batches,
        reference={variant: reference},
        **options,
    )
