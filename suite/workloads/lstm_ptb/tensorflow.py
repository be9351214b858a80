"""The LSTM language model in TensorFlow. Sequences are time-major internally, [T, B, H]."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow.framework import Batch, Tensor
from suite.frameworks.tensorflow.pair import BasePair
from suite.frameworks.tensorflow.recurrent import NO_DROPOUT, Dropout, lstm, project, with_transposed
from suite.workloads.lstm_ptb.data import windows

Weights = dict[str, Tensor]


def run_layers(weights: Weights, tokens: Tensor, state: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """Inputs [T, B, H] of the softmax for ``tokens`` [B, T], and the new state.

    ``state`` is [layers, 2, B, H], hidden and cell. Dropout is between layers, not between steps.
    """
    values = tf.gather(weights["embedding"], tf.transpose(tokens))
    moved = []
    for layer in range(state.shape[0]):
        name = f"lstm.{layer}"
        kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
        start = state[layer, 0], state[layer, 1]
        values, last = lstm(dropout(name, values), kernel, recurrent, bias, start)
        moved.append(tf.stack(last))
    return dropout("softmax", values), tf.stack(moved)


def classify(weights: Weights, hidden: Tensor) -> Tensor:
    """Logits [T, B, V]."""
    return tf.nn.bias_add(project(weights, "softmax.weight", hidden), weights["softmax.bias"])


class Pair(BasePair):
    """The language model. Each step casts the master weights to the compute type.

    Training and inference carry the recurrent state from step to step (:meth:`carry`).
    """

    keeps_norm = True

    def build(self) -> None:
        """Make the dropout, the state [layers, 2, B, H] and the functions for outputs and evaluation."""
        self.dropout = Dropout(self.job.number("dropout"))
        self._state = tf.Variable(self._zero_state(self.job.key.batch), trainable=False)
        self.state = [self._state]
        self._outputs = self.framework.make_fast(self._logits)
        self._score_window = self.framework.make_fast(self._window)

    def inference_weights(self) -> Weights:
        """The weights in the compute type; on a CPU the softmax's also transposed."""
        weights = self.cast()
        return weights if self.framework.cuda else with_transposed(weights, ["softmax.weight"])

    def _zero_state(self, batch: int) -> Tensor:
        return tf.zeros((self.dims.layers, 2, batch, self.dims.hidden), self.framework.compute_dtype)

    def begin_step(self, index: int) -> None:
        """Reset the state at the first step of an epoch."""
        if index % self.data.steps_per_epoch == 0:
            self._state.assign(tf.zeros_like(self._state))

    def carry(self, carried: Tensor) -> None:
        """Store the state ``carried`` for the next step."""
        self._state.assign(carried)

    def _score(
        self, weights: Weights, batch: Batch, state: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Losses [T, B] of a batch, in fp32 where logits are half-precision, and the state after it."""
        hidden, moved = run_layers(weights, batch["inputs"], state, dropout)
        self.framework.observed.note(activations=hidden)
        logits = tf.cast(classify(weights, hidden), self.framework.dtype)
        targets = tf.transpose(batch["targets"])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits), moved

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross entropy, summed over steps and averaged over rows, and the new state."""
        losses, moved = self._score(self.cast(), batch, self._state, self.dropout)
        return tf.reduce_sum(losses) / losses.shape[1], moved

    def infer(self, batch: Batch) -> Tensor:
        """Negative log likelihoods [B, T]; updates the state."""
        losses, moved = self._score(self.read(), batch, self._state, NO_DROPOUT)
        self.carry(moved)
        return tf.transpose(losses)

    def _logits(self, batch: Batch) -> Tensor:
        weights = self.cast()
        return classify(weights, run_layers(weights, batch["inputs"], self._state, NO_DROPOUT)[0])

    def _window(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses [T] of one row, and the state after them; ``batch`` contains the state before."""
        losses, moved = self._score(self.cast(), batch, batch["state"], NO_DROPOUT)
        return losses[:, 0], moved

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V] without dropout, from the carried state, which does not change."""
        return self.framework.array(self._outputs(self.framework.feed(self.data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        state, parts = self._zero_state(1), []
        for window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in window.items()}
            losses, state = self._score_window({**batch, "state": state}, None)
            parts.append(losses)
        return {"nll": self.framework.array(tf.concat(parts, axis=0))[: len(arrays["tokens"]) - 1]}
