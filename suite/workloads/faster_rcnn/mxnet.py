"""Faster R-CNN in MXNet Gluon."""

from __future__ import annotations

from typing import Any

import numpy as np
from mxnet import autograd
from numpy.typing import NDArray

from suite.frameworks.mxnet import Framework, Momentum, Tensor, clip_by_global_norm
from suite.workloads.contract import Data, Job
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.backbone import Start
from suite.workloads.faster_rcnn.mxnet_model import Model

Arrays = dict[str, NDArray[Any]]


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._start, fixed = Start.of(job), spec.frozen(dims)
        self._model = Model(dims, framework, self._start.norms())
        found = self._model.parameters
        self._weights: dict[str, Tensor] = {name: found[name].data() for name in found}
        self._trained = {name: w for name, w in self._weights.items() if name not in fixed}
        self._gradients: dict[str, Tensor] = {name: found[name].grad() for name in self._trained}
        self._load()
        self._results = framework.results(self._trained.values())
        self._clip, self._decay = job.number("clip"), job.number("weight_decay")
        if job.key.phase == "train":
            self._momentum = Momentum(list(self._trained.values()), job.hyper)
        framework.observed.note(weights=self._weights["head.score.weight"])

    def _load(self) -> None:
        for name, value in self._start.weights():
            self._weights[name][:] = self._framework.tensor(value)

    def _differentiate(self, index: int) -> Tensor:
        """The loss of batch ``index``; leaves its gradients in the parameters' gradient arrays."""
        batch = self._framework.feed(self._data, index)
        with autograd.record():
            loss = self._model.loss(batch)
        loss.backward()
        self._framework.observed.note(gradients=self._gradients["head.score.weight"])
        return loss

    def _update(self) -> None:
        gradients = list(self._gradients.values())
        if self._clip:
            gradients, _ = clip_by_global_norm(gradients, self._clip)
        pairs = zip(gradients, self._momentum.parameters, strict=True)
        self._momentum.update([gradient + self._decay * weight for gradient, weight in pairs])

    def step(self, index: int) -> None:
        """One update of SGD, or the detections of one batch, kept on the device."""
        if self._job.key.phase == "train":
            self._momentum.set_rate(spec.rate_of(self._job, index))
            self._results.keep(self._differentiate(index))
            self._update()
        else:
            self._results.keep(self._model.detect(self._framework.feed(self._data, index)))

    def reset(self) -> None:
        """Initial weights and no velocity, in place."""
        self._load()
        if self._job.key.phase == "train":
            self._momentum.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or detections [batch, n, 6], since the last call."""
        found = self._results.collect()
        return [loss.reshape(()) if loss.size == 1 else loss for loss in found]  # MXNet has no scalars

    def parameters(self) -> Arrays:
        """Weights by canonical name, the frozen ones too."""
        found = {name: self._framework.array(weight) for name, weight in self._weights.items()}
        return found | self._start.fixed()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name; zero for what is frozen."""
        self._differentiate(index)
        return {
            name: self._framework.array(self._gradients.get(name, weight * 0))
            for name, weight in self._weights.items()
        }

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Scores and boxes of all anchors and of the sampled regions of batch ``index``, in one row."""
        return self._framework.array(self._model.raw(self._framework.feed(self._data, index)))

    def predict(self, arrays: Arrays) -> Arrays:
        """Detections by image: ``boxes`` [n, k, 4] in pixels of the resized image, ``scores``, ``labels``."""
        batch = {name: self._framework.tensor(arrays[name]) for name in ("images", "sizes")}
        found = self._framework.array(self._model.detect(batch)).astype(np.float32)
        return {
            "boxes": found[:, :, :4],
            "scores": found[:, :, 4],
            "labels": found[:, :, 5].astype(np.int32),
            "image": arrays["image"],
        }
