"""Image classifiers in TensorFlow, by a training loop of its own: one pair for every network."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite import workloads
from suite.frameworks import tensorflow_layers as layers
from suite.frameworks.tensorflow import Batch, Framework, Momentum, Tensor, clip_by_global_norm
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
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._network = spec.network(self._dims)
        self._mean, self._scale = (
            framework.tensor(np.array([float(value) for value in values]))
            for values in (spec.MEAN, spec.SCALE)
        )
        self.dropout = layers.Dropout(job.number("dropout"))
        self._counter = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._weights = {name: tf.Variable(self._tensor(value)) for name, value in self._initial()}
        self._running = layers.Statistics(self._network, framework.tensor)
        self._training = job.key.phase == "train"
        self._results = framework.results()
        # The views of the tests run op by op: tracing would take longer than their few calls.
        self._evaluate = framework.make_fast(
            lambda batch: self._logits(batch["images"], self._running.named())
        )
        if self._training:
            decayed = network_layers.decayed(self._network)
            at = [index for index, name in enumerate(self._weights) if name in decayed]
            self._momentum = Momentum(list(self._weights.values()), job.hyper, at)
            state = [*self._weights.values(), *self._momentum.state, self._running.variable]
            self._fast = framework.make_fast(self._update, state)
        else:
            self._fold()
            self._fast = framework.make_fast(self._infer)

    def _initial(self) -> Any:
        return weights.initial(self._spec.NAME, self._spec.parameters(self._dims))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return self._framework.tensor(layers.stored(array))

    def _fold(self) -> None:
        statistics = folding.expected_statistics(self._network)
        found = folding.fold(self._network, self.parameters(), statistics)
        compute = self._framework.compute
        self._folded = network_layers.folded(self._network)
        self._stored = {
            name: tf.Variable(compute(self._tensor(value)), trainable=False) for name, value in found.items()
        }

    def _pixels(self, images: Tensor) -> Tensor:
        return layers.pixels(images, self._mean, self._scale, self._framework.compute_dtype)

    def _logits(self, images: Tensor, running: Any) -> Tensor:
        run = layers.Pass(self._weights, running)
        return tf.cast(layers.compute(self._network, self._pixels(images), run), self._framework.dtype)

    def _loss(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Smoothed cross entropy, and the statistics of the batch."""
        self.dropout.seed = tf.stack((tf.constant(self._job.seed % 2**40, tf.int64), self._counter))
        run = layers.Pass(self._weights, dropout=self.dropout)
        found = layers.compute(self._network, self._pixels(batch["images"]), run)
        self._framework.observed.note(weights=next(iter(self._weights.values())), activations=found)
        log_p = tf.nn.log_softmax(tf.cast(found, self._framework.dtype))
        chosen = tf.gather(log_p, batch["labels"], axis=1, batch_dims=1)
        smoothing = self._job.number("smoothing")
        rows = (1.0 - smoothing) * chosen + smoothing * tf.reduce_mean(log_p, axis=1)
        return -tf.reduce_mean(rows), list(run.seen.values())

    def _differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        scaling = self._framework.scaling
        with tf.GradientTape() as tape:
            loss, seen = self._loss(batch)
            scaled = scaling.scaled(loss)
        gradients = scaling.unscaled(tape.gradient(scaled, list(self._weights.values())))
        self._framework.observed.note(gradients=gradients[0])
        return loss, gradients, seen

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients, seen = self._differentiate(batch)
        if limit := self._job.number("clip"):
            gradients, _ = clip_by_global_norm(gradients, limit)
        self._framework.scaling.update(self._momentum, gradients)
        self._running.update(seen)
        self._counter.assign_add(1)
        return loss

    def _infer(self, batch: Batch) -> Tensor:
        run = layers.Pass(self._stored)
        found = layers.compute(self._folded, self._pixels(batch["images"]), run)
        self._framework.observed.note(weights=next(iter(self._stored.values())), activations=found)
        return tf.cast(found, self._framework.dtype)

    def step(self, index: int) -> None:
        """One update, or the logits [batch, classes] of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._training:
            self._momentum.set_rate(self._spec.rate_of(self._job, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    def reset(self) -> None:
        """Initial weights and statistics, an empty optimiser, and the dropout stream from its start."""
        if not self._training:
            return
        for name, value in self._initial():
            self._weights[name].assign(self._tensor(value))
        self._running.reset()
        self._momentum.reset()
        self._framework.scaling.reset()
        self._counter.assign(0)

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or logits, since the last call."""
        return self._results.collect()

    def _canonical(self, tensors: Any) -> Arrays:
        arrays = map(self._framework.array, tensors)
        return {name: layers.canonical(value) for name, value in zip(self._weights, arrays, strict=True)}

    def parameters(self) -> Arrays:
        """Master weights by canonical name and layout."""
        return self._canonical(self._weights.values())

    def gradients(self, index: int) -> Arrays:
        """Gradient of the mean loss of batch ``index``, without weight decay; statistics stay as they are."""
        return self._canonical(self._differentiate(self._framework.feed(self._data, index))[1])

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        return self._framework.array(self._logits(self._framework.feed(self._data, index)["images"], None))

    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        images = self._framework.feed(self._data, index)["images"]
        return self._framework.array(self._logits(images, self._running.named()))

    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of a batch of the evaluation: see :func:`best`."""
        batch = {"images": self._framework.tensor(arrays["images"])}
        return best(self._framework.array(self._evaluate(batch, None)), arrays["index"])
