"""Faster R-CNN in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.frameworks.pytorch import Batch, Framework, Momentum, clip_by_global_norm
from suite.workloads.contract import Data, Job
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.backbone import Start
from suite.workloads.faster_rcnn.pytorch_model import Model

Arrays = dict[str, NDArray[Any]]


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._start, fixed = Start.of(job), spec.frozen(dims)
        self._weights: dict[str, Tensor] = {
            name: framework.tensor(value) for name, value in self._start.weights()
        }
        self._trained = {name: w.requires_grad_() for name, w in self._weights.items() if name not in fixed}
        self._model = Model(dims, framework, self._start.norms())
        self._results = framework.results()
        self._loss = framework.compile(self._model.loss)
        self._detect = framework.compile(self._model.detect)
        self._clip, self._decay = job.number("clip"), job.number("weight_decay")
        if job.key.phase == "train":
            self._momentum = Momentum(list(self._trained.values()), job.hyper)
            state = [*self._trained.values(), *self._momentum.state]
            self._fast = framework.make_fast(self._update, state)
        else:
            # Weights may be stored in the type of inference; a quality run scores with the master weights.
            self._stored = {n: w.detach().to(framework.compute_dtype) for n, w in self._weights.items()}
            self._fast = framework.make_fast(self._infer)

    def _differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        loss, scaling = self._loss(self._weights, batch), self._framework.scaling
        return loss, scaling.unscaled(torch.autograd.grad(scaling.scaled(loss), list(self._trained.values())))

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients = self._differentiate(batch)
        self._framework.observed.note(weights=self._weights["head.score.weight"], gradients=gradients[-1])
        if self._clip:
            gradients, _ = clip_by_global_norm(gradients, self._clip)
        with torch.no_grad():
            gradients = torch._foreach_add(gradients, self._momentum.parameters, alpha=self._decay)
        self._framework.scaling.update(self._momentum, gradients)
        return loss.detach()

    @torch.no_grad()
    def _infer(self, batch: Batch) -> Tensor:
        self._framework.observed.note(weights=self._stored["head.score.weight"])
        return self._detect(self._stored, batch)

    def step(self, index: int) -> None:
        """One update of SGD, or the detections of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._job.key.phase == "train":
            self._momentum.set_rate(spec.rate_of(self._job, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    @torch.no_grad()
    def reset(self) -> None:
        """Initial weights and no velocity, in place."""
        for name, value in self._start.weights():
            self._weights[name].copy_(self._framework.tensor(value))
        if self._job.key.phase == "train":
            self._momentum.reset()
            self._framework.scaling.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or detections [batch, n, 6], since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Master weights by canonical name, the frozen ones too."""
        found = {name: self._framework.array(weight) for name, weight in self._weights.items()}
        return found | self._start.fixed()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name; zero for what is frozen."""
        _, found = self._differentiate(self._framework.feed(self._data, index))
        trained = dict(zip(self._trained, found, strict=True))
        return {
            name: self._framework.array(trained.get(name, torch.zeros_like(weight)))
            for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Scores and boxes of all anchors and of the sampled regions of batch ``index``, in one row."""
        batch = self._framework.feed(self._data, index)
        return self._framework.array(self._model.raw(self._weights, batch))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Detections by image: ``boxes`` [n, k, 4] in pixels of the resized image, ``scores``, ``labels``."""
        batch = {name: self._framework.tensor(arrays[name]) for name in ("images", "sizes")}
        found = self._framework.array(self._detect(self._weights, batch)).astype(np.float32)
        return {
            "boxes": found[:, :, :4],
            "scores": found[:, :, 4],
            "labels": found[:, :, 5].astype(np.int32),
            "image": arrays["image"],
        }
