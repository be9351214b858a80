"""Pairs whose training steps keep the loss and the norm of the gradient before clipping, side by side."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from suite.workloads.contract import STEPS


class ClippedSteps:
    """The part of a :class:`suite.workloads.contract.Pair` that hands losses out and keeps norms.

    A pair sets ``train``, its store ``_results``, in which a training step keeps [loss, norm] and another its
    output, and an empty ``_norms``, which ``reset`` empties again.
    """

    train: bool
    _results: Any
    _norms: list[float]

    def collect(self) -> list[NDArray[Any]]:
        """Losses (train), or outputs (infer), since the last call."""
        results: list[NDArray[Any]] = self._results.collect()
        if not self.train:
            return results
        self._norms += [float(pair[1]) for pair in results]
        return [pair[0] for pair in results]

    def gradient_norms(self) -> list[float]:
        """Norms before clipping of the first 110 steps since the last reset."""
        return self._norms[:STEPS]
