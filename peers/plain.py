"""What a plain script hands to the one loop that times it. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plain:
    """A model, its optimiser and its batches, ready to run.

    ``step(index)`` is one update (train), whose loss it returns, or one batch of outputs (infer). ``fetch``
    copies what a step returned to the host, as a numpy array; ``synchronize`` waits until nothing is left to
    do.
    """

    step: Callable[[int], Any]
    fetch: Callable[[Any], Any]
    synchronize: Callable[[], None]
    parameters: int  # trainable numbers
