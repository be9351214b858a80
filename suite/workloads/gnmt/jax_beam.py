"""GNMT's step-by-step decoder in JAX, for the search of :mod:`suite.workloads.gnmt.beam`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from suite.workloads.gnmt import beam
from suite.workloads.gnmt import jax_model as model

Tensor = Any


class JaxDecoder:
    """See :class:`suite.workloads.gnmt.beam.Decoder`: the beams of a sentence are neighbours in one batch.

    ``step`` is the compiled :func:`scores_and_state`, shared by all batches of a run; ``state`` that before
    the first word, which the first step overwrites.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        weights: model.Weights,
        memory: model.Memory,
        state: list[Tensor],
        beams: int,
    ) -> None:
        self._step, self._weights, self._memory, self._state = step, weights, memory, state
        self._first = np.arange(memory.outputs.shape[0], dtype=np.int32)[:, None] * beams

    def scores(self, tokens: NDArray[Any], parents: NDArray[Any]) -> tuple[Tensor, ...]:
        """Log probabilities [B K, V], attention [B, K, S], best words [B K, K] and their scores."""
        rows = (self._first + parents).ravel().astype(np.int32)
        words = tokens.ravel().astype(np.int32)
        *scores, self._state = self._step(self._weights, self._memory, self._state, words, rows)
        return tuple(scores)

    def advance(
        self, tokens: NDArray[Any], parents: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """See :class:`suite.workloads.gnmt.beam.Decoder`."""
        _, attention, words, gains = self.scores(tokens, parents)
        shape = (*tokens.shape, tokens.shape[1])
        return np.asarray(words).reshape(shape), np.asarray(gains).reshape(shape), np.asarray(attention)


def scores_and_state(
    weights: model.Weights, memory: model.Memory, state: list[Tensor], tokens: Tensor, rows: Tensor
) -> Any:
    """The results of ``scores``, and the new state; beam i continues from the state in row ``rows[i]``."""
    sentences = memory.outputs.shape[0]
    moved = [tensor[rows] for tensor in state]
    logits, attention, state = model.decode_step(weights, memory, tokens, moved)
    log_p = jax.nn.log_softmax(logits.astype(memory.vector.dtype))
    # Of equal scores top_k returns the one with the smaller index first.
    _, best = lax.top_k(jnp.floor(log_p * beam.GRID + 0.5), len(tokens) // sentences)
    gains = jnp.take_along_axis(log_p, best, axis=1)
    return log_p, attention, best, gains, state
