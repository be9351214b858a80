"""The store of outputs of steps on a GPU in TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.common import Results


class StackedResults(Results):
    """Outputs of equal shape and type reach the host in one copy, which takes less time than many."""

    def collect(self) -> list[NDArray[Any]]:
        """Every stored output in order, on the host; the store is empty afterwards."""
        tensors, self._tensors = self._tensors, []
        alike: dict[Any, list[int]] = {}
        for at, tensor in enumerate(tensors):
            alike.setdefault((tuple(tensor.shape), tensor.dtype), []).append(at)
        found: dict[int, NDArray[Any]] = {}
        for group in alike.values():
            if len(group) == 1:
                found[group[0]] = self._framework.array(tensors[group[0]])
            else:
                rows = self._framework.array(tf.stack([tensors[at] for at in group]))
                found |= dict(zip(group, rows, strict=True))
        return [found[at] for at in range(len(tensors))]
