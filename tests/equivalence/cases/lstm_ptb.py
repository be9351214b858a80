"""The LSTM language model: the state is carried through three windows, then an epoch begins from zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import Job
from suite.workloads.lstm_ptb import spec
from tests.equivalence.case import Case

Arrays = dict[str, NDArray[Any]]

TOKENS = 50  # of the evaluation: two whole windows and a part


class Batches:
    """Random words, different in each step; three steps per epoch."""

    steps_per_epoch = 3

    def __init__(self, job: Job) -> None:
        self._dims, self._count = spec.dimensions(job.key.scale, job.key.variant), job.key.batch

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """Inputs and targets of ``step``."""
        shape = self._count, self._dims.steps
        ids = Stream("test", step).integers(self._dims.vocabulary, 2 * shape[0] * shape[1]).astype(np.int32)
        return dict(zip(("inputs", "targets"), ids.reshape(2, *shape), strict=True))

    def evaluation(self) -> Iterator[Arrays]:
        """One batch."""
        yield text(self._dims)


def text(dims: spec.Dimensions) -> Arrays:
    """A few words in a row."""
    return {"tokens": Stream("test", "text").integers(dims.vocabulary, TOKENS).astype(np.int32)}


CASE = Case(
    workload="lstm_ptb",
    variant="small",
    batch=4,
    evaluation=text,
    predicted={"nll": (TOKENS - 1,)},
    hyper={"dropout": "0", "clip": "0.5", "constant_epochs": "2"},
    data=Batches,
    reference={"small": 4, "medium": 4, "large": 2},
    fp32_update={"mini": 1e-4, "reference": 1e-4},  # the largest seen is 8e-6
)
