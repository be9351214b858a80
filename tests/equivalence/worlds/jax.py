"""What the comparison of world sizes needs to know of JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
from numpy.typing import NDArray


def exchanged(pair: Any, mean: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Inside, a step of ``pair`` updates by the gradients ``mean`` instead of those of its batch."""
    tensors = [pair.stored_layout(array)[None] for array in mean.values()]

    def step(carried: Any, trained: Any, frozen: Any, state: Any, batch: Any, key: Any, rate: Any) -> Any:
        loss, _, after = pair._differentiate(carried, trained, frozen, state, batch, key)
        carried, moved, result = pair._apply(carried, trained, loss, tensors, batch, rate)
        return carried, moved, after, result

    return mock.patch.object(pair, "_step", step)


def subtract(pair: Any, name: str, array: NDArray[Any]) -> None:
    """Subtract ``array`` from the master ``name`` of ``pair``."""
    pair.masters[name] = pair.trained[name] = pair.masters[name] - pair.framework.tensor(array)


def summed(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sum of the ranks' ``parts``."""
    return np.sum(parts, axis=0)


def leave() -> None:
    """Wait until all ranks leave: a rank ends with an error when the process of rank 0 has ended before."""
    jax.distributed.shutdown()
