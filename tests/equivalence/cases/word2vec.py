"""word2vec d100: different words in each step, frequent enough to be their own negatives, and long steps.

At the rate of the recipe no score passes the saturation within ten steps; at this one many do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import Job
from suite.workloads.word2vec import spec
from suite.workloads.word2vec.data import Pairs
from tests.equivalence.case import Case

Arrays = dict[str, NDArray[Any]]
LINE = 70  # so that windows end inside a step
FREQUENT = 1_300  # three words in four are among these: over a whole vocabulary few would meet twice


class Batches:
    """Random words, different in each step, the first of them many times."""

    steps_per_epoch = 1000

    def __init__(self, job: Job) -> None:
        self._dims, self._job = spec.dimensions(job.key.scale, job.key.variant), job
        self._pairs = Pairs(job, 100_000 // np.arange(1, self._dims.vocabulary + 1))

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """The arrays of ``step``."""
        count = self._job.global_batch
        draw = Stream("test", step).unit(count)
        known = self._dims.vocabulary
        bound = np.where(np.arange(count) % 4, min(known, FREQUENT), known)
        words = (draw * draw * draw * bound).astype(np.int32)
        if self._job.key.phase == "infer":
            return {"queries": words}
        return self._pairs.arrays(words, np.arange(count) // LINE, "test", step)

    def evaluation(self) -> Iterator[Arrays]:
        """One batch."""
        yield words(self._dims)


def words(dims: spec.Dimensions) -> Arrays:
    """Seven words."""
    return {"words": Stream("test", "words").integers(dims.vocabulary, 7).astype(np.int32)}


CASE = Case(
    workload="word2vec",
    variant="d100",
    batch=200,
    evaluation=words,
    predicted={"vectors": (7, 100)},
    hyper={"rate": "2", "row_pairs": "12", "sample": "0.02", "rate_drops": "2:0.5 5:0.1"},
    data=Batches,
    columns={"words": np.s_[:, :, 0], "cosines": np.s_[:, :, 1]},
    reference={"d100": 1000, "d200": 400},
    fp32_update={"mini": 1e-5, "reference": 1e-5},
)
