"""The LSTM language model in PyTorch. Sequences are time-major internally, [T, B, H]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.framework import Batch
from suite.frameworks.pytorch.pair import BasePair
from suite.frameworks.pytorch.recurrent import NO_DROPOUT, Dropout, lstm, widen
from suite.workloads.lstm_ptb.data import windows

Weights = Mapping[str, Tensor]


def run_layers(weights: Weights, tokens: Tensor, state: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """Inputs [T, B, H] of the softmax for ``tokens`` [B, T], and the new state.

    ``state`` is [layers, 2, 1, B, H], hidden and cell. Dropout is between layers, not between steps.
    """
    values = functional.embedding(tokens.t(), weights["embedding"])
    moved: list[Tensor] = []
    for layer in range(state.shape[0]):
        name = f"lstm.{layer}"
        kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
        start = state[layer, 0], state[layer, 1]
        values, last = lstm(dropout(name, values), kernel, recurrent, bias, start)
        moved += last
    return dropout("softmax", values), torch.stack(moved).detach().view_as(state)


def run_stacked(weights: Weights, tokens: Tensor, state: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """As :func:`run_layers` by Triton's kernels, for ``weights`` of any type; inputs are padded with zeros.

    The embedding is looked up in the type of its weight: a cast of all its rows would take longer.
    """
    from suite.frameworks.pytorch.stacked_lstm import stacked_lstm  # imports Triton

    layers = range(state.shape[0])
    values = dropout("lstm.0", functional.embedding(tokens.t(), weights["embedding"]).to(state.dtype))
    factors = dropout.factors([*(f"lstm.{layer}" for layer in layers[1:]), "softmax"], values)
    parts = [weights[f"lstm.{layer}.{part}"] for layer in layers for part in ("input", "hidden", "bias")]
    return stacked_lstm(values, state, factors, parts)


def classify(weights: Weights, hidden: Tensor) -> Tensor:
    """Logits [T, B, V]; ``hidden`` may be padded with zeros, ``weights`` may have another type."""
    weight, bias = weights["softmax.weight"], weights["softmax.bias"]
    if weight.dtype != hidden.dtype or weight.shape[1] != hidden.shape[-1]:
        weight, bias = widen(weight, hidden.shape[-1], hidden.dtype), bias.to(hidden.dtype)
    return functional.linear(hidden, weight, bias)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log likelihoods [T, B] of ``targets`` [B, T], in fp32 where logits are half-precision."""
    wide = logits.double() if logits.dtype == torch.float64 else logits.float()
    losses = functional.cross_entropy(wide.flatten(0, 1), targets.t().flatten(), reduction="none")
    return losses.view(logits.shape[:2])


class Pair(BasePair):
    """The model and its recurrent state, which is carried from step to step and reset at each epoch.

    Each step casts the master weights to the compute type. ``stacked``: Triton's kernels compute the layers.
    """

    compiled = ()  # only the softmax's losses are compiled
    keeps_norm = True

    def build(self) -> None:
        """Make the dropout, the state and the compiled loss."""
        # cuDNN is faster in fp32, and closer to float64 in tf32. In float64 the kernels can be checked.
        kinds = (torch.bfloat16, torch.float16, torch.float64)
        self.stacked = self.framework.cuda and self.framework.fast and self.framework.compute_dtype in kinds
        self.dropout = Dropout(self.job.number("dropout"))
        self._carried = self._zero_state(self.job.key.batch)
        self.state = [self._carried]
        self._losses = self.framework.compile(token_losses)

    def _zero_state(self, batch: int) -> Tensor:
        shape = (self.dims.layers, 2, 1, batch, self.dims.hidden)
        return torch.zeros(shape, dtype=self.framework.compute_dtype, device=self.framework.device)

    def begin_step(self, index: int) -> None:
        """Reset the state at the first step of an epoch."""
        if index % self.data.steps_per_epoch == 0:
            self._carried.zero_()

    def carry(self, carried: Tensor) -> None:
        """Store the state ``carried`` for the next step."""
        self._carried.copy_(carried)

    def _run_layers(
        self, weights: Weights, batch: Batch, state: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Inputs [T, B, H] of the softmax, padded if ``stacked``, and the state after them."""
        tokens = batch["inputs"].long()
        if not self.stacked:
            return run_layers(weights, tokens, state, dropout)
        return run_stacked(weights, tokens, state, dropout)

    def _weights(self) -> Weights:
        """The weights of :meth:`_score`; the kernels and their softmax cast the masters themselves."""
        return self.masters if self.stacked else self.cast()

    def inference_weights(self) -> dict[str, Tensor]:
        """As the base class; the softmax's weight as wide as its padded inputs."""
        weights = super().inference_weights()
        if self.stacked:
            from suite.frameworks.pytorch.stacked_lstm import padded_width  # imports Triton

            weight = weights["softmax.weight"]
            weights["softmax.weight"] = widen(weight, padded_width(weight.shape[1]), weight.dtype)
        return weights

    def _score(
        self, weights: Weights, batch: Batch, state: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Losses [T, B] of a batch and the state after it."""
        hidden, moved = self._run_layers(weights, batch, state, dropout)
        self.framework.observed.note(activations=hidden)
        return self._losses(classify(weights, hidden), batch["targets"].long()), moved

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross entropy, summed over steps and averaged over rows, and the new state."""
        losses, moved = self._score(self._weights(), batch, self._carried, self.dropout)
        return losses.sum() / losses.shape[1], moved

    def infer(self, batch: Batch) -> Tensor:
        """Negative log likelihoods [B, T]; updates the state."""
        losses, moved = self._score(self.stored, batch, self._carried, NO_DROPOUT)
        self.carry(moved)
        return losses.t().contiguous()

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V] without dropout, from the carried state, which does not change."""
        batch, weights = self.framework.feed(self.data, index), self._weights()
        hidden, _ = self._run_layers(weights, batch, self._carried, NO_DROPOUT)
        return self.framework.array(classify(weights, hidden))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        weights, state, parts = self._weights(), self._zero_state(1), []
        for window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in window.items()}
            losses, state = self._score(weights, batch, state, NO_DROPOUT)
            parts.append(losses[:, 0])
        return {"nll": self.framework.array(torch.cat(parts))[: len(arrays["tokens"]) - 1]}
