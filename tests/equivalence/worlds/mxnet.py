"""What the comparison of world sizes needs to know of MXNet."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray


def exchanged(pair: Any, mean: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Inside, a step of ``pair`` updates by the gradients ``mean`` instead of those of its batch."""
    tensors = [pair.framework.tensor(array) for array in mean.values()]

    def replacement(loss: Any) -> list[Any]:
        loss.backward()  # updates the running statistics
        pair.framework.synchronize()
        return tensors

    return mock.patch.object(pair, "differentiate_and_exchange", replacement)


def subtract(pair: Any, name: str, array: NDArray[Any]) -> None:
    """Subtract ``array`` from the master ``name`` of ``pair``, in place."""
    master = pair.masters[name]
    master -= pair.framework.tensor(array)


def summed(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sum of the ranks' ``parts`` in float32, as the server computes it."""
    return np.sum([part.astype(np.float32) for part in parts], axis=0).astype(np.float64)


def leave() -> None:
    """Nothing to do before a rank's process ends."""
