"""The interface between a plain script and the loop that times it. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plain:
    """A model, its optimiser and its batches, ready to run.

    ``step(index)`` is one update (train), whose loss it returns, or one batch of outputs (infer). ``fetch``
    copies the result of a step to the host, as a numpy array; ``synchronize`` waits until all work is done.
    """

    step: Callable[[int], Any]
    fetch: Callable[[Any], Any]
    synchronize: Callable[[], None]
    parameters: int  # trainable numbers
