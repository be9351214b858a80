"""Faster R-CNN in TensorFlow, by a training loop of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.tensorflow import Batch, Framework, Momentum, Tensor, clip_by_global_norm
from suite.frameworks.tensorflow_layers import canonical, stored
from suite.workloads.contract import Data, Job
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.backbone import Start
from suite.workloads.faster_rcnn.tensorflow_model import Model

Arrays = dict[str, NDArray[Any]]


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._start, fixed = Start.of(job), spec.frozen(dims)
        self._weights: dict[str, Any] = {
            name: tf.Variable(framework.tensor(stored(value)), trainable=name not in fixed)
            for name, value in self._start.weights()
        }
        self._trained = {name: w for name, w in self._weights.items() if name not in fixed}
        model = Model(dims, framework, self._start.norms())
        self._loss = model.loss
        self._results = framework.results()
        self._gradient = framework.make_fast(lambda batch: self._differentiate(batch)[1])
        self._raw = framework.make_fast(lambda batch: model.raw(self._weights, batch))
        self._predict = framework.make_fast(lambda batch: model.detect(self._weights, batch))
        self._clip, self._decay = job.number("clip"), job.number("weight_decay")
        if job.key.phase == "train":
            self._momentum = Momentum(list(self._trained.values()), job.hyper)
            self._fast = framework.make_fast(self._update, [*self._trained.values(), *self._momentum.state])
        else:
            # Weights may be stored in the type of inference; a quality run scores with the master weights.
            held = {n: tf.Variable(framework.compute(w)) for n, w in self._weights.items()}
            framework.observed.note(weights=held["head.score.weight"])
            self._fast = framework.make_fast(lambda batch: model.detect(held, batch))

    def _differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        with tf.GradientTape() as tape:
            loss = self._loss(self._weights, batch)
            scaled = self._framework.scaling.scaled(loss)
        gradients = tape.gradient(scaled, list(self._trained.values()))
        return loss, self._framework.scaling.unscaled(gradients)

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients = self._differentiate(batch)
        self._framework.observed.note(weights=self._weights["head.score.weight"], gradients=gradients[-1])
        if self._clip:
            gradients, _ = clip_by_global_norm(gradients, self._clip)
        pairs = zip(gradients, self._momentum.parameters, strict=True)
        gradients = [gradient + self._decay * weight for gradient, weight in pairs]
        self._framework.scaling.update(self._momentum, gradients)
        return loss

    def step(self, index: int) -> None:
        """One update of SGD, or the detections of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._job.key.phase == "train":
            self._momentum.set_rate(spec.rate_of(self._job, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    def reset(self) -> None:
        """Initial weights and no velocity, in place."""
        for name, value in self._start.weights():
            self._weights[name].assign(self._framework.tensor(stored(value)))
        if self._job.key.phase == "train":
            self._momentum.reset()
            self._framework.scaling.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or detections [batch, n, 6], since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Master weights by canonical name, the frozen ones too."""
        found = {name: canonical(self._framework.array(weight)) for name, weight in self._weights.items()}
        return found | self._start.fixed()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name; zero for what is frozen."""
        found = self._gradient(self._framework.feed(self._data, index), None)
        trained = dict(zip(self._trained, found, strict=True))
        return {
            name: canonical(self._framework.array(trained.get(name, tf.zeros_like(weight))))
            for name, weight in self._weights.items()
        }

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Scores and boxes of all anchors and of the sampled regions of batch ``index``, in one row."""
        return self._framework.array(self._raw(self._framework.feed(self._data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """Detections by image: ``boxes`` [n, k, 4] in pixels of the resized image, ``scores``, ``labels``."""
        batch = {name: self._framework.tensor(arrays[name]) for name in ("images", "sizes")}
        found = self._framework.array(self._predict(batch, None)).astype(np.float32)
        return {
            "boxes": found[:, :, :4],
            "scores": found[:, :, 4],
            "labels": found[:, :, 5].astype(np.int32),
            "image": arrays["image"],
        }
