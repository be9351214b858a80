"""The LSTM language model in JAX. Sequences are time-major internally, [T, B, H]."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.jax.framework import Batch, Tensor
from suite.frameworks.jax.pair import BasePair, Inputs, Weights
from suite.frameworks.jax.recurrent import NO_DROPOUT, Dropout, lstm, project, token_losses
from suite.workloads.lstm_ptb.data import windows


def run_layers(weights: Weights, tokens: Tensor, state: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """Inputs [T, B, H] of the softmax for ``tokens`` [B, T], and the new state.

    ``state`` is [layers, 2, B, H], hidden and cell. Dropout is between layers, not between steps.
    """
    values = weights["embedding"][tokens.T].astype(state.dtype)
    moved = []
    for layer in range(state.shape[0]):
        name = f"lstm.{layer}"
        kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
        start = state[layer, 0], state[layer, 1]
        values, last = lstm(dropout(name, values), kernel, recurrent, bias, start)
        moved.append(jnp.stack(last))
    return dropout("softmax", values), jnp.stack(moved)


def _transposed(weights: Weights) -> Weights:
    """``weights`` with the recurrent matrices transposed, from [4H, H] to [H, 4H] or back."""
    return {name: weight.T if name.endswith(".hidden") else weight for name, weight in weights.items()}


def classify(weights: Weights, hidden: Tensor) -> Tensor:
    """Logits [T, B, V]."""
    return project(hidden, weights["softmax.weight"], weights["softmax.bias"])


class Pair(BasePair):
    """The language model. Each step casts the master weights to the compute type.

    ``state`` holds the recurrent state, which each step replaces and each epoch restarts.
    """

    keeps_norm = True

    def build(self) -> None:
        """Make the dropout, the state [layers, 2, B, H] and the functions for outputs and evaluation."""
        self.dropout = Dropout(self.job.number("dropout"))
        self.state = [self._zero_state(self.job.key.batch)]
        fast = self.framework.make_fast
        self._outputs = fast(self._logits)
        self._score_window = fast(
            lambda weights, batch, state: self._score(self._products(weights), batch, state, NO_DROPOUT)
        )

    def _zero_state(self, batch: int) -> Tensor:
        return jnp.zeros((self.dims.layers, 2, batch, self.dims.hidden), self.framework.compute_dtype)

    def begin_step(self, index: int) -> None:
        """Restart from the zero state at the first step of an epoch."""
        if index % self.data.steps_per_epoch == 0:
            self.restart_state()

    def _products(self, masters: Weights) -> Weights:
        """The weights of products in the compute type; only the rows that a batch reads of the embedding."""
        return self.cast(masters) | {"embedding": masters["embedding"]}

    def _score(
        self, weights: Weights, batch: Batch, state: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Losses [T, B] of a batch, in fp32 where logits are half-precision, and the state after it."""
        hidden, moved = run_layers(weights, batch["inputs"], state, dropout)
        self.framework.observed.note(activations=hidden)
        return token_losses(classify(weights, hidden), batch["targets"].T), moved

    def loss(self, inputs: Inputs) -> tuple[Tensor, list[Tensor]]:
        """Cross entropy, summed over steps and averaged over rows, and the new state."""
        weights, dropout = self._products(inputs.weights), self.dropout.keyed(inputs.key)
        losses, moved = self._score(weights, inputs.batch, inputs.state[0], dropout)
        return jnp.sum(losses) / losses.shape[1], [moved]

    def inference_weights(self) -> Weights:
        """Recurrent matrices are stored transposed: XLA would transpose them on a CPU in each window."""
        return _transposed(super().inference_weights())

    def infer(self, inputs: Inputs) -> tuple[Tensor, list[Tensor]]:
        """Negative log likelihoods [B, T], and the new state."""
        losses, moved = self._score(_transposed(inputs.weights), inputs.batch, inputs.state[0], NO_DROPOUT)
        return losses.T, [moved]

    def _logits(self, masters: Weights, batch: Batch, state: Tensor) -> Tensor:
        weights = self._products(masters)
        return classify(weights, run_layers(weights, batch["inputs"], state, NO_DROPOUT)[0])

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V] without dropout, from the carried state, which does not change."""
        (state,) = self.framework.exchange.local(self.state)
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._outputs(self.local_masters(), batch, state))

    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        weights, state, parts = self.local_masters(), self.framework.put(self._zero_state(1)), []
        for window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in window.items()}
            losses, state = self._score_window(weights, batch, state)
            parts.append(losses[:, 0])
        return {"nll": self.framework.array(jnp.concatenate(parts))[: len(arrays["tokens"]) - 1]}
