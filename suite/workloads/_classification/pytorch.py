"""Image classifiers in PyTorch: one pair for every network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite import workloads
from suite.frameworks import pytorch_layers as layers
from suite.frameworks.pytorch import Batch, Framework, Momentum, clip_by_global_norm
from suite.frameworks.pytorch_checked import Checked
from suite.workloads import folding, weights
from suite.workloads import layers as network_layers
from suite.workloads._classification.predictions import best
from suite.workloads.contract import Data, Job

Arrays = dict[str, NDArray[Any]]


class Pair:
    """See :class:`suite.workloads.contract.Pair`. Masters are fp32; products are in the compute type."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        spec: Any = workloads.specification(job.key.workload)
        self._spec = spec
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._network = spec.network(dims)
        self._mean, self._scale = (
            framework.tensor(np.array([float(value) for value in values]))
            for values in (spec.MEAN, spec.SCALE)
        )
        self.dropout = layers.Dropout(job.number("dropout"))
        self._weights: dict[str, Tensor] = {}
        for name, value in weights.initial(self._spec.NAME, self._spec.parameters(dims)):
            self._weights[name] = layers.stored(framework.tensor(value)).requires_grad_(True)
        self._running = layers.Statistics(self._network, framework.tensor)
        self._training = job.key.phase == "train"
        self._results = framework.results()
        self._mean_loss = framework.compile(self._loss)
        self._forward = Checked(
            framework.compile(self._folded_logits), self._folded_logits, framework.compute_dtype
        )
        if self._training:
            decayed = network_layers.decayed(self._network)
            at = [index for index, name in enumerate(self._weights) if name in decayed]
            self._momentum = Momentum(list(self._weights.values()), job.hyper, at)
            state = [*self._weights.values(), *self._momentum.state, *self._running.named.values()]
            self._fast = framework.make_fast(self._update, state)
        else:
            self._fold()
            self._fast = framework.make_fast(self._infer)
        self._observe(dims.image)

    def _fold(self) -> None:
        statistics = folding.expected_statistics(self._network)
        found = folding.fold(self._network, self.parameters(), statistics)
        dtype, tensor = self._framework.compute_dtype, self._framework.tensor
        self._folded = network_layers.folded(self._network)
        self._stored = {name: layers.stored(tensor(value).to(dtype)) for name, value in found.items()}

    @torch.no_grad()
    def _observe(self, side: int) -> None:
        """Note the types of one image's pass: a compiled function cannot."""
        image = torch.zeros((1, side, side, 3), dtype=torch.uint8, device=self._framework.device)
        held = self._weights if self._training else self._stored
        run = layers.Pass(self._weights, self._running.named)
        found = layers.compute(self._network, self._pixels(image), run)
        self._framework.observed.note(activations=found, weights=next(iter(held.values())))

    def _pixels(self, images: Tensor) -> Tensor:
        return layers.pixels(images, self._mean, self._scale, self._framework.compute_dtype)

    def _loss(self, images: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Smoothed cross entropy, and the statistics of the batch."""
        run = layers.Pass(self._weights, dropout=self.dropout)
        logits = layers.compute(self._network, self._pixels(images), run).to(self._framework.dtype)
        loss = F.cross_entropy(logits, labels.long(), label_smoothing=self._job.number("smoothing"))
        return loss, list(run.seen.values())

    def _differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        loss, seen = self._mean_loss(batch["images"], batch["labels"])
        scaling = self._framework.scaling
        found = torch.autograd.grad(scaling.scaled(loss), list(self._weights.values()))
        gradients = scaling.unscaled(found)
        self._framework.observed.note(gradients=gradients[0])
        return loss.detach(), gradients, seen

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients, seen = self._differentiate(batch)
        if limit := self._job.number("clip"):
            gradients, _ = clip_by_global_norm(gradients, limit)
        self._framework.scaling.update(self._momentum, gradients)
        self._running.update(seen)
        return loss

    def _folded_logits(self, images: Tensor) -> Tensor:
        found = layers.compute(self._folded, self._pixels(images), layers.Pass(self._stored))
        return found.to(self._framework.dtype)

    @torch.no_grad()
    def _infer(self, batch: Batch) -> Tensor:
        return self._forward(batch["images"])

    def step(self, index: int) -> None:
        """One update, or the logits [batch, classes] of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._training:
            self._momentum.set_rate(self._spec.rate_of(self._job, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    @torch.no_grad()
    def reset(self) -> None:
        """Initial weights and statistics, an empty optimiser, and the dropout stream from its start."""
        torch.manual_seed(self._job.seed)
        if not self._training:
            return
        dims = self._spec.dimensions(self._job.key.scale, self._job.key.variant)
        for name, value in weights.initial(self._spec.NAME, self._spec.parameters(dims)):
            self._weights[name].copy_(self._framework.tensor(value))
        for name, value in folding.initial_statistics(self._network).items():
            self._running.named[name].copy_(self._framework.tensor(value))
        self._momentum.reset()
        self._framework.scaling.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or logits, since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Master weights by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the mean loss of batch ``index``, without weight decay; statistics stay as they are."""
        _, gradients, _ = self._differentiate(self._framework.feed(self._data, index))
        return {n: self._framework.array(g) for n, g in zip(self._weights, gradients, strict=True)}

    @torch.no_grad()
    def _logits(self, images: Tensor, running: dict[str, Tensor] | None) -> NDArray[np.floating[Any]]:
        run = layers.Pass(self._weights, running)
        return self._framework.array(layers.compute(self._network, self._pixels(images), run))

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        return self._logits(self._framework.feed(self._data, index)["images"], None)

    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        return self._logits(self._framework.feed(self._data, index)["images"], self._running.named)

    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of a batch of the evaluation: see :func:`best`."""
        images = self._framework.tensor(arrays["images"])
        return best(self._logits(images, self._running.named), arrays["index"])
