"""What the comparison of world sizes needs to know of PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray


def exchanged(pair: Any, mean: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Inside, a step of ``pair`` updates by the gradients ``mean`` instead of those of its batch."""
    tensors = [pair.layout(pair.framework.tensor(array)) for array in mean.values()]
    return mock.patch.object(pair, "differentiate_and_exchange", return_value=tensors)


def subtract(pair: Any, name: str, array: NDArray[Any]) -> None:
    """Subtract ``array`` from the master ``name`` of ``pair``."""
    pair.masters[name].data -= pair.framework.tensor(array)


def summed(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sum of the ranks' ``parts``."""
    return np.sum(parts, axis=0)


def leave() -> None:
    """Nothing to do before a rank's process ends."""
