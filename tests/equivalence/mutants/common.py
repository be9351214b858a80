"""Ways to break the PyTorch pair of any workload; ``mutants/<case>.py`` makes ``MUTANTS`` with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from suite.frameworks.pytorch import optimisers

# Inside the context pairs are built and run; it yields hyperparameters to change.
Mutant = Callable[[], "contextlib.AbstractContextManager[dict[str, str]]"]


def patch(target: Any, attribute: str, replacement: Any) -> Mutant:
    """``target.attribute`` replaced."""

    @contextlib.contextmanager
    def mutant() -> Iterator[dict[str, str]]:
        with mock.patch.object(target, attribute, replacement):
            yield {}

    return mutant


def hyper_mutant(**hyper: str) -> Mutant:
    """Other hyperparameters."""
    return lambda: contextlib.nullcontext(hyper)


class NoUpdate(optimisers.Adam):
    """An optimiser that does nothing."""

    def update(self, gradients: Any) -> None:
        """Do nothing."""


class EpsilonBeforeCorrection(optimisers.Adam):
    """Adam with epsilon added before the bias correction, as in TensorFlow and MXNet."""

    def update(self, gradients: Any) -> None:
        """Apply one update."""
        step, kept = float(self._steps[0]) + 1, self._epsilon
        self._epsilon = kept / (1 - self._beta2**step) ** 0.5
        super().update(gradients)
        self._epsilon = kept
