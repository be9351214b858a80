"""The store of outputs of steps on a GPU in TensorFlow."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.common import Results

# Bytes from which on an output is copied while later steps run; a smaller copy disturbs more than it saves.
LARGE = 1 << 16
# Small outputs that one copy brings to the host, as many as a warm-up has: the first stack of each number of
# tensors in a process loads a kernel, which takes about 10 ms.
STACKED = 10


class CopiedResults(Results):
    """Large outputs reach the host while later steps run, small ones of equal shape by tens.

    A copy waits for its step and lets go of Python's lock, so one thread makes them in order.
    """

    def __init__(self, framework: Any) -> None:
        super().__init__(framework)
        self._copies = ThreadPoolExecutor(1)

    def keep(self, tensor: Any) -> None:
        """Store ``tensor``, which no later step may overwrite."""
        large = tensor.dtype.size * tensor.shape.num_elements() >= LARGE
        self._tensors.append(self._copies.submit(self._framework.array, tensor) if large else tensor)

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
            whole = len(group) - len(group) % STACKED
            for first in range(0, whole, STACKED):
                some = group[first : first + STACKED]
                rows = self._framework.array(tf.stack([kept[at] for at in some]))
                found |= dict(zip(some, rows, strict=True))
            found |= {at: self._framework.array(kept[at]) for at in group[whole:]}
        return [found[at] for at in range(len(kept))]
