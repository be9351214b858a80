"""The store of outputs of steps on a GPU in TensorFlow."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from suite.contract import WARMUP_STEPS
from suite.frameworks.common import Results

LARGE = 1 << 16  # bytes of an output that a thread copies; for smaller ones the hand-over takes longer
# Steps launched ahead of the oldest copy. A copy waits for all steps that were launched before it: with more
# of them, copies end long after the steps; with none, the device waits for the host. Not measured on a GPU.
AHEAD = 2


class OverlappedResults(Results):
    """Large outputs are copied to the host by a thread, beside later steps; small ones ten in one copy.

    The first stack of each number of tensors in a process loads a kernel, which takes about 10 ms: stacks
    have as many as the warm-up has steps.
    """

    def __init__(self, framework: Any) -> None:
        super().__init__(framework)
        self._thread = ThreadPoolExecutor(1)

    def keep(self, tensor: Any) -> None:
        """Store ``tensor``, which no later step may overwrite."""
        if tensor.dtype.size * tensor.shape.num_elements() < LARGE:
            self._tensors.append(tensor)
            return
        copy = self._thread.submit(self._framework.array, tensor)
        self._tensors.append(copy)
        earlier = self._tensors[-1 - AHEAD :][0]
        if len(self._tensors) > AHEAD and isinstance(earlier, Future):
            earlier.result()

    def collect(self) -> list[NDArray[Any]]:
        """Every stored output in order, on the host; the store is empty afterwards."""
        kept, self._tensors = self._tensors, []
        alike: dict[Any, list[int]] = {}
        found: dict[int, NDArray[Any]] = {}
        for at, one in enumerate(kept):
            if isinstance(one, Future):
                found[at] = one.result()
            else:
                alike.setdefault((tuple(one.shape), one.dtype), []).append(at)
        for group in alike.values():
            whole = len(group) - len(group) % WARMUP_STEPS
            for first in range(0, whole, WARMUP_STEPS):
                some = group[first : first + WARMUP_STEPS]
                rows = self._framework.array(tf.stack([kept[at] for at in some]))
                found |= dict(zip(some, rows, strict=True))
            found |= {at: self._framework.array(kept[at]) for at in group[whole:]}
        return [found[at] for at in range(len(kept))]
