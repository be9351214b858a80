"""GNMT's step-by-step decoder in PyTorch, for the search of :mod:`suite.workloads.gnmt.beam`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from suite.frameworks.pytorch.recurrent import NO_DROPOUT
from suite.workloads.gnmt import beam
from suite.workloads.gnmt import pytorch_model as model

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PytorchDecoder:
    """See :class:`suite.workloads.gnmt.beam.Decoder`: the beams of a sentence are neighbours in one batch."""

    def __init__(
        self, weights: model.Weights, layers: int, source: Tensor, lengths: Tensor, beams: int
    ) -> None:
        self._weights = weights
        outputs = model.encode(weights, layers, source, lengths, NO_DROPOUT)
        self._memory = model.Memory.of(weights, outputs, lengths)
        sentences, hidden = outputs.shape[1:]
        self._state = model.State.zeros(layers, outputs.new_zeros(sentences * beams, hidden))
        self._first = (torch.arange(sentences, device=source.device) * beams)[:, None]

    def scores(self, tokens: NDArray[Any], parents: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Log probabilities [B K, V] of every word, and the attention [B, K, S]; see ``advance``."""
        device = self._first.device
        rows = (self._first + torch.from_numpy(parents).to(device)).flatten()
        self._state.move(rows)
        words = torch.from_numpy(np.ascontiguousarray(tokens)).to(device).long().flatten()
        logits, attention = model.decode_step(self._weights, self._state, words, self._memory, fast=False)
        return torch.log_softmax(logits.to(self._memory.vector.dtype), dim=1), attention

    def advance(
        self, tokens: NDArray[Any], parents: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """See :class:`suite.workloads.gnmt.beam.Decoder`."""
        beams = tokens.shape[1]
        log_p, attention = self.scores(tokens, parents)
        # All keys are different integers: topk meets no ties.
        words = log_p.shape[1]
        keys = torch.floor(log_p * beam.GRID + 0.5).long() * words - torch.arange(words, device=log_p.device)
        best = keys.topk(beams, dim=1).indices
        shape = (*tokens.shape, beams)
        gains = log_p.gather(1, best).reshape(shape)
        return best.reshape(shape).cpu().numpy(), gains.cpu().numpy(), attention.cpu().numpy()
