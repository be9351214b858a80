"""GNMT at mini scale: ragged batches that differ from step to step, with padding on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import Job
from suite.workloads.gnmt import spec
from suite.workloads.gnmt.data import pack
from tests.equivalence.case import Case

Arrays = dict[str, NDArray[Any]]

END = 9  # padded length; sentences hold 3 to 9 tokens


def sentences(words: int, count: int, *key: str | int) -> list[NDArray[np.int32]]:
    """``count`` random sentences between BOS and EOS."""
    lengths = Stream("test", "lengths", *key).integers(END - 2, count) + 1
    ids = Stream("test", "words", *key).integers(words - spec.SPECIALS, count * END) + spec.SPECIALS
    rows = ids.reshape(count, END)
    marked = [np.r_[spec.BOS, row[:n], spec.EOS] for row, n in zip(rows, lengths, strict=True)]
    return [row.astype(np.int32) for row in marked]


class Batches:
    """Random pairs, different in each step."""

    steps_per_epoch = 1000

    def __init__(self, job: Job) -> None:
        self._dims, self._count = spec.dimensions(job.key.scale, job.key.variant), job.key.batch

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """A padded batch."""
        sides = [sentences(self._dims.vocabulary, self._count, side, step) for side in ("source", "target")]
        return pack(list(zip(*sides, strict=True)), END)

    def evaluation(self) -> Iterator[Arrays]:
        """One batch."""
        yield translations(self._dims)


def translations(dims: spec.Dimensions) -> Arrays:
    """Three sentences to translate, not in their order."""
    sources = sentences(dims.vocabulary, 3, "evaluation")
    padded = np.zeros((3, END), np.int32)
    for row, source in enumerate(sources):
        padded[row, : len(source)] = source
    lengths = np.array([len(source) for source in sources], np.int32)
    return {"source": padded, "source_lengths": lengths, "index": np.array([2, 0, 1])}


CASE = Case(
    workload="gnmt",
    variant="v2",
    batch=6,
    evaluation=translations,
    predicted={"tokens": (3, -1), "index": (3,)},
    hyper={"dropout": "0", "warmup_steps": "0", "clip": "0.5"},
    data=Batches,
    reference={"v2": 4},
)
