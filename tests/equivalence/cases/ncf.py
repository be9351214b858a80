"""NeuMF f8: batches differ from step to step, and each leaves some rows of the tables unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import Job
from suite.workloads.ncf import spec
from tests.equivalence.case import Case

Arrays = dict[str, NDArray[Any]]


class Batches:
    """Random users, items and labels, different in each step."""

    steps_per_epoch = 1000

    def __init__(self, job: Job) -> None:
        self._dims, self._count = spec.dimensions(job.key.scale, job.key.variant), job.key.batch

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """Users, items, labels of ``step``."""
        stream, count = Stream("test", step), self._count
        return {
            "users": stream.integers(self._dims.users, count).astype(np.int32),
            "items": stream.integers(self._dims.items, count, start=count).astype(np.int32),
            "labels": stream.integers(2, count, start=2 * count).astype(np.float32),
        }

    def evaluation(self) -> Iterator[Arrays]:
        """One batch."""
        yield candidates(self._dims)


def candidates(dims: spec.Dimensions) -> Arrays:
    """Five users with a hundred items each."""
    stream = Stream("test", "candidates")
    return {
        "users": stream.integers(dims.users, 5).astype(np.int32),
        "items": stream.integers(dims.items, 500, start=5).astype(np.int32).reshape(5, 100),
    }


CASE = Case(
    workload="ncf",
    variant="f8",
    batch=256,
    evaluation=candidates,
    predicted={"scores": (5, 100)},
    data=Batches,
    reference={"f8": 256, "f64": 256},
    # The largest seen are 3e-6 and 1.1e-5: Adam divides rounding errors by the root of small squares.
    fp32_update={"mini": 1e-5, "reference": 5e-5},
)
