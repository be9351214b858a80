"""What the comparison of world sizes needs to know of TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray


@contextlib.contextmanager
def exchanged(pair: Any, mean: dict[str, Any]) -> Iterator[None]:
    """Inside, a step of ``pair`` updates by the gradients ``mean`` instead of those of its batch.

    A step is traced once for each shape, so it reads the gradients from variables, which ``pair`` keeps.
    """
    tensors = [pair.stored_layout(array) for array in mean.values()]
    if not hasattr(pair, "means"):
        pair.means = [tf.Variable(tensor, trainable=False) for tensor in tensors]
        pair._run = pair.framework.make_fast(pair.update)  # the pair's own may be traced already
    for variable, tensor in zip(pair.means, tensors, strict=True):
        variable.assign(tensor)
    with mock.patch.object(pair, "exchange", return_value=pair.means):
        yield


def subtract(pair: Any, name: str, array: NDArray[Any]) -> None:
    """Subtract ``array`` from the master ``name`` of ``pair``."""
    pair.masters[name].assign_sub(pair.framework.tensor(array))


def summed(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sum of the ranks' ``parts``."""
    return np.sum(parts, axis=0)


def leave() -> None:
    """Nothing to do before a rank's process ends."""
