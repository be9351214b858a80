"""GNMT's step-by-step decoder in TensorFlow, for the search of :mod:`suite.workloads.gnmt.beam`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from suite.workloads.gnmt import beam
from suite.workloads.gnmt import tensorflow_model as model

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tensor = Any


class TensorflowDecoder:
    """See :class:`suite.workloads.gnmt.beam.Decoder`: the beams of a sentence are neighbours in one batch.

    ``step`` is the traced :func:`scores_and_state`, shared by all batches of a run.
    """

    def __init__(
        self, step: Callable[..., Any], weights: model.Weights, memory: list[Tensor], layers: int, beams: int
    ) -> None:
        self._step, self._weights, self._memory = step, weights, memory
        sentences, _, hidden = memory[0].shape
        self._state = [tf.zeros((sentences * beams, hidden), memory[0].dtype)] * (2 * layers)
        self._first = np.arange(sentences, dtype=np.int32)[:, None] * beams

    def scores(self, tokens: NDArray[Any], parents: NDArray[Any]) -> tuple[Tensor, ...]:
        """Log probabilities [B K, V], attention [B, K, S], best words [B K, K] and their scores."""
        rows = tf.constant((self._first + parents).ravel().astype(np.int32))
        *scores, self._state = self._step(
            self._weights, self._memory, self._state, tf.constant(tokens.ravel().astype(np.int32)), rows
        )
        return tuple(scores)

    def advance(
        self, tokens: NDArray[Any], parents: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """See :class:`suite.workloads.gnmt.beam.Decoder`."""
        _, attention, words, gains = self.scores(tokens, parents)
        shape = (*tokens.shape, tokens.shape[1])
        return words.numpy().reshape(shape), gains.numpy().reshape(shape), attention.numpy()


def scores_and_state(
    weights: model.Weights, memory: list[Tensor], state: list[Tensor], tokens: Tensor, rows: Tensor
) -> Any:
    """The results of ``scores``, and the new state; beam i continues from the state in row ``rows[i]``."""
    sentences, beams = memory[0].shape[0], tokens.shape[0] // memory[0].shape[0]
    moved = [tf.gather(tensor, rows) for tensor in state]
    logits, attention, state = model.decode_step(weights, model.Memory(*memory), tokens, moved)
    log_p = tf.nn.log_softmax(tf.cast(logits, memory[2].dtype))
    # All keys are different integers: top_k meets no ties.
    words = log_p.shape[1]
    keys = tf.cast(tf.floor(log_p * beam.GRID + 0.5), tf.int64) * words - tf.range(words, dtype=tf.int64)
    best = tf.math.top_k(keys, beams).indices
    gains = tf.gather(log_p, best, batch_dims=1)
    return log_p, tf.reshape(attention, (sentences, beams, -1)), best, gains, state
