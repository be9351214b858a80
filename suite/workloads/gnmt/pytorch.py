"""GNMT in PyTorch: training loss, decoding, and the outputs that tests compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.framework import Batch
from suite.frameworks.pytorch.pair import BasePair
from suite.frameworks.pytorch.recurrent import NO_DROPOUT, Dropout
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import pytorch_kernels as kernels
from suite.workloads.gnmt import pytorch_model as model
from suite.workloads.gnmt.pytorch_beam import PytorchDecoder


class Pair(BasePair):
    """GNMT. Each step casts the master weights to the compute type."""

    chooses = True
    compiled = ()  # single kernels of the model are compiled, not the whole step
    keeps_norm = True

    def build(self) -> None:
        """Make the dropout and choose the kernels."""
        self.dropout = Dropout(self.job.number("dropout"))
        self.fast_kernels = self.framework.fast and self.framework.cuda

    def observe(self) -> None:
        """Note the type of one encoded token: a decoding step returns only token ids."""
        if self.training:
            return
        token = torch.full((1, 1), spec.BOS, device=self.framework.device)
        encoded = model.encode(self.stored, self.dims.layers, token, torch.ones_like(token[0]), NO_DROPOUT)
        self.framework.observed.note(activations=encoded)

    def _hidden(self, weights: model.Weights, batch: Batch, dropout: Dropout) -> Tensor:
        """Decoder outputs [T, B, H] by teacher forcing."""
        lengths, layers = batch["source_lengths"].long(), self.dims.layers
        outputs = model.encode(weights, layers, batch["source"].long(), lengths, dropout)
        memory = model.Memory.of(weights, outputs, lengths)
        return model.decode(weights, layers, batch["target_in"].long(), memory, dropout, self.fast_kernels)

    def loss(self, batch: Batch) -> Tensor:
        """Smoothed cross entropy over real positions, divided by the number of sentences."""
        weights = self.cast()
        hidden = self._hidden(weights, batch, self.dropout)
        logits = model.classify(weights, hidden).flatten(0, 1)
        targets = batch["target_out"].long().t().flatten()
        counted = (targets != spec.PAD).to(self.framework.dtype)
        loss = kernels.fast_loss if self.fast_kernels else kernels.plain_loss
        self.framework.observed.note(activations=hidden)
        return loss(logits, targets, counted, self.job.number("smoothing")) / batch["source"].shape[0]

    def infer(self, batch: Batch) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, then PAD; EOS does not stop a sentence."""
        source, lengths = batch["source"].long(), batch["source_lengths"].long()
        steps = batch["target_in"].shape[1]
        tokens = model.generate(self.stored, self.dims.layers, source, lengths, steps, fast=self.fast_kernels)
        position = torch.arange(steps, device=tokens.device)
        return tokens.masked_fill(position >= batch["target_lengths"][:, None], spec.PAD)

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch, weights = self.framework.feed(self.data, index), self.cast()
        logits = model.classify(weights, self._hidden(weights, batch, NO_DROPOUT))
        return self.framework.array(logits.transpose(0, 1)[batch["target_out"] != spec.PAD])

    def decoder(self, arrays: Arrays) -> PytorchDecoder:
        """A step-by-step decoder for ``source`` [n, S] with ``source_lengths`` [n]."""
        source = self.framework.tensor(arrays["source"]).long()
        lengths = self.framework.tensor(arrays["source_lengths"]).long()
        return PytorchDecoder(self.cast(), self.dims.layers, source, lengths, int(self.job.hyper["beam"]))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        return beam.translations(self.decoder(arrays), arrays, self.job)
