"""NeuMF in TensorFlow, by a training loop of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.tensorflow import Adam, Batch, Framework, Tensor
from suite.workloads import weights
from suite.workloads.contract import Data, Job
from suite.workloads.ncf import spec

Arrays = dict[str, NDArray[Any]]


def logits(weight: dict[str, Tensor], users: Tensor, items: Tensor, framework: Framework) -> Tensor:
    """Scores before the sigmoid, [n], for users [n] and items [n], in the type of the parameters."""
    cast = framework.compute
    product = tf.gather(weight["mf.user"], users) * tf.gather(weight["mf.item"], items)
    halves = tf.gather(weight["mlp.user"], users), tf.gather(weight["mlp.item"], items)
    hidden = cast(tf.concat(halves, axis=1))
    for layer in range(1, sum(name.endswith(".weight") for name in weight)):
        sums = tf.matmul(hidden, cast(weight[f"mlp.{layer}.weight"]), transpose_b=True)
        hidden = tf.nn.relu(tf.nn.bias_add(sums, cast(weight[f"mlp.{layer}.bias"])))
    joined = tf.concat((cast(product), hidden), axis=1)
    score = tf.matmul(joined, cast(weight["output.weight"]), transpose_b=True)
    score = tf.squeeze(tf.nn.bias_add(score, cast(weight["output.bias"])), axis=1)
    framework.observed.note(weights=weight["mf.user"], activations=hidden)
    return tf.cast(score, framework.dtype)


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._hyper, self._framework, self._data = job.hyper, framework, data
        self._specified = spec.parameters(spec.dimensions(job.key.scale, job.key.variant))
        self._weights: dict[str, Any] = {}
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name] = tf.Variable(framework.tensor(value))
        self._training = job.key.phase == "train"
        self._results = framework.results()
        self._gradient = framework.make_fast(lambda batch: self._differentiate(batch)[1])
        self._logits = framework.make_fast(self._forward)
        if self._training:
            self._adam = Adam(list(self._weights.values()), job.hyper)
            self._fast = framework.make_fast(self._update, [*self._weights.values(), *self._adam.state])
        else:
            # Weights may be stored in the type of inference; a quality run scores with the master weights.
            self._stored = {n: tf.Variable(framework.compute(w)) for n, w in self._weights.items()}
            self._fast = framework.make_fast(self._infer)

    def _differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        with tf.GradientTape() as tape:
            found = logits(self._weights, batch["users"], batch["items"], self._framework)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["labels"], logits=found)
            loss = tf.reduce_mean(losses)
            scaled = self._framework.scaling.scaled(loss)
        gradients = tape.gradient(scaled, list(self._weights.values()))
        return loss, self._framework.scaling.unscaled(gradients)

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients = self._differentiate(batch)
        self._framework.observed.note(gradients=gradients[0])
        self._framework.scaling.update(self._adam, gradients)
        return loss

    def _infer(self, batch: Batch) -> Tensor:
        return tf.sigmoid(logits(self._stored, batch["users"], batch["items"], self._framework))

    def _forward(self, batch: Batch) -> Tensor:
        return logits(self._weights, batch["users"], batch["items"], self._framework)

    def step(self, index: int) -> None:
        """One update of Adam, or the scores (sigmoid) of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._training:
            self._adam.set_rate(spec.learning_rate(self._hyper, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    def reset(self) -> None:
        """Initial weights and an empty optimiser, in place."""
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name].assign(self._framework.tensor(value))
        if self._training:
            self._adam.reset()
            self._framework.scaling.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or scores [batch], since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Master weights by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the mean loss of batch ``index`` by canonical name."""
        found = self._gradient(self._framework.feed(self._data, index), None)
        return {n: self._framework.array(g) for n, g in zip(self._weights, found, strict=True)}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        return self._framework.array(self._logits(self._framework.feed(self._data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without the ties of saturation."""
        items = arrays["items"]
        users = np.repeat(arrays["users"], items.shape[1])
        tensor = self._framework.tensor
        batch = {"users": tensor(users), "items": tensor(items.reshape(-1))}
        found = self._framework.array(self._logits(batch, None))
        return {"scores": found.reshape(items.shape).astype(np.float32)}
