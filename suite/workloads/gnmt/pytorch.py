"""The pair gnmt / pytorch: training step, decoding, and the views that the tests compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from suite.frameworks.pytorch import Adam, Batch, Framework, clip_by_global_norm
from suite.frameworks.pytorch_recurrent import NO_DROPOUT, Dropout
from suite.workloads import weights as initial_weights
from suite.workloads.clipped import ClippedSteps
from suite.workloads.contract import Data, Job
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import pytorch_kernels as kernels
from suite.workloads.gnmt import pytorch_model as model
from suite.workloads.gnmt.data import first_of_each_shape
from suite.workloads.gnmt.pytorch_beam import PytorchDecoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


class Pair(ClippedSteps):
    """See :class:`suite.workloads.contract.Pair`. Masters are fp32; a step casts them for its arithmetic."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.dims = spec.dimensions(job.key.scale, job.key.variant)
        self.train = job.key.phase == "train"
        self.dropout = Dropout(job.number("dropout"))
        self._fast = framework.fast and framework.cuda
        self._masters = {name: framework.tensor(array) for name, array in self._initial()}
        for master in self._masters.values():
            master.requires_grad_(self.train)
        self._results = framework.results()
        self._norms = []
        if self.train:
            self._adam = Adam(list(self._masters.values()), job.hyper)
            self._run = framework.make_fast(self._update, [*self._masters.values(), *self._adam.state])
        else:
            self._frozen = self._cast()
            self._run = framework.make_fast(self._decode)
            self._observe()
        if job.mode == "throughput":
            self._compile()

    def _initial(self) -> Any:
        return initial_weights.initial(spec.NAME, spec.parameters(self.dims))

    def _cast(self) -> dict[str, Tensor]:
        """The weights in the type of the arithmetic."""
        dtype = self.framework.compute_dtype
        return {name: master.to(dtype) for name, master in self._masters.items()}

    @torch.no_grad()
    def _observe(self) -> None:
        """Note the types of one encoded token: a decoding step shows nothing but token ids."""
        token = torch.full((1, 1), spec.BOS, device=self.framework.device)
        found = model.encode(self._frozen, self.dims.layers, token, torch.ones_like(token[0]), NO_DROPOUT)
        self.framework.observed.note(weights=self._frozen["embedding"], activations=found)

    def _hidden(self, weights: dict[str, Tensor], batch: Batch, dropout: Dropout) -> Tensor:
        """Decoder outputs [T, B, H] by teacher forcing."""
        lengths, layers = batch["source_lengths"].long(), self.dims.layers
        outputs = model.encode(weights, layers, batch["source"].long(), lengths, dropout)
        memory = model.Memory.of(weights, outputs, lengths)
        return model.decode(weights, layers, batch["target_in"].long(), memory, dropout, self._fast)

    def _loss(self, batch: Batch) -> Tensor:
        """Smoothed cross entropy over real positions, divided by the number of sentences."""
        weights = self._cast()
        hidden = self._hidden(weights, batch, self.dropout)
        logits = model.classify(weights, hidden).flatten(0, 1)
        targets = batch["target_out"].long().t().flatten()
        counted = (targets != spec.PAD).to(self.framework.dtype)
        loss = kernels.fast_loss if self._fast else kernels.plain_loss
        self.framework.observed.note(weights=self._masters["embedding"], activations=hidden)
        return loss(logits, targets, counted, self.job.number("smoothing")) / batch["source"].shape[0]

    def _gradients(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        loss, scaling = self._loss(batch), self.framework.scaling
        found = torch.autograd.grad(scaling.scaled(loss), list(self._masters.values()))
        gradients = scaling.unscaled(found)
        self.framework.observed.note(gradients=gradients[0])
        return loss.detach(), gradients

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients = self._gradients(batch)
        clipped, norm = clip_by_global_norm(gradients, self.job.number("clip"))
        self.framework.scaling.update(self._adam, clipped)
        return torch.stack((loss, norm))

    @torch.no_grad()
    def _decode(self, batch: Batch) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, PAD behind; EOS does not stop a sentence."""
        source, lengths = batch["source"].long(), batch["source_lengths"].long()
        steps = batch["target_in"].shape[1]
        tokens = model.generate(self._frozen, self.dims.layers, source, lengths, steps, fast=self._fast)
        position = torch.arange(steps, device=tokens.device)
        return tokens.masked_fill(position >= batch["target_lengths"][:, None], spec.PAD)

    def _compile(self) -> None:
        """Run one step of each shape of batches that are read; the worker does so for staged ones."""
        for index in first_of_each_shape(self.data):
            self.step(index)
        if self.collect():
            self.reset()

    def step(self, index: int) -> None:
        """See the contract."""
        batch = self.framework.feed(self.data, index)
        if self.train:
            self._adam.set_rate(spec.learning_rate(self.job.hyper, index))
        self._results.keep(self._run(batch, self.data.slot(index)))

    def reset(self) -> None:
        """See the contract; the dropout stream starts again too."""
        torch.manual_seed(self.job.seed)
        self._norms.clear()
        if not self.train:
            return
        with torch.no_grad():
            for name, array in self._initial():
                self._masters[name].copy_(self.framework.tensor(array))
        self._adam.reset()
        self.framework.scaling.reset()

    def parameters(self) -> Arrays:
        """See the contract."""
        return {name: self.framework.array(master) for name, master in self._masters.items()}

    def gradients(self, index: int) -> Arrays:
        """See the contract."""
        _, gradients = self._gradients(self.framework.feed(self.data, index))
        names = self._masters
        return {name: self.framework.array(g) for name, g in zip(names, gradients, strict=True)}

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch, weights = self.framework.feed(self.data, index), self._cast()
        logits = model.classify(weights, self._hidden(weights, batch, NO_DROPOUT))
        return self.framework.array(logits.transpose(0, 1)[batch["target_out"] != spec.PAD])

    def decoder(self, arrays: Arrays) -> PytorchDecoder:
        """Single steps of the decoder over ``source`` [n, S] with ``source_lengths`` [n]."""
        source = self.framework.tensor(arrays["source"]).long()
        lengths = self.framework.tensor(arrays["source_lengths"]).long()
        return PytorchDecoder(self._cast(), self.dims.layers, source, lengths, int(self.job.hyper["beam"]))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        sentences, width = arrays["source"].shape
        rules = beam.Rules.of(self.job.hyper, spec.decoding_limit(self.job.key.scale, width))
        return {"tokens": beam.search(self.decoder(arrays), sentences, rules), "index": arrays["index"]}
