"""Skip-gram with negative sampling in TensorFlow, its gradients written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.tensorflow import Batch, Framework, Tensor
from suite.workloads import weights
from suite.workloads.contract import Data, Job
from suite.workloads.word2vec import spec

Arrays = dict[str, NDArray[Any]]


def errors(scores: Tensor, contexts: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each context, [C, 2W + 1], and the derivative by each score, [C, 1 + K, 2W + 1].

    ``scores`` [C, 1 + K, 2W + 1]; the first target of each centre is the true one.
    """
    weight = live[:, :, None] * contexts[:, None, :]
    sure = tf.cast(scores > 0, scores.dtype)
    chance = tf.where(tf.abs(scores) > spec.SATURATION, sure, tf.sigmoid(scores))
    true = tf.one_hot(0, scores.shape[1], dtype=scores.dtype)[None, :, None]
    losses = tf.nn.softplus(scores) - true * scores  # softplus(-x) is softplus(x) - x
    return tf.reduce_sum(losses * weight, axis=1), (chance - true) * weight


def gradients(
    words: Tensor, targets: Tensor, contexts: Tensor, live: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [C, 2W + 1], and the gradient of their sum by the rows ``words`` and the rows ``targets``.

    ``words`` [C + 2W, D] and ``targets`` [C, 1 + K, D] are rows of the tables, in the type that products are
    computed in.
    """
    (count, span), full = contexts.shape, contexts.dtype
    windows = tf.stack([words[place : place + count] for place in range(span)], axis=1)
    losses, error = errors(tf.cast(tf.matmul(targets, windows, transpose_b=True), full), contexts, live)
    error = tf.cast(error, words.dtype)
    by_target = tf.cast(tf.matmul(error, windows), full)
    by_context = tf.cast(tf.matmul(error, targets, transpose_a=True), full)
    shifted = [tf.pad(by_context[:, at], [[at, span - 1 - at], [0, 0]]) for at in range(span)]
    return losses, tf.add_n(shifted), by_target


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        self._specified = spec.parameters(spec.dimensions(job.key.scale, job.key.variant))
        self._weights: dict[str, Any] = {}
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name] = tf.Variable(framework.tensor(value))
        self._results = framework.results()
        self._losses = framework.make_fast(lambda batch: self._differentiate(batch)[0])
        self._dense = framework.make_fast(self._scatter)
        self._rows = framework.make_fast(lambda batch: self._normalised(batch["words"]))
        if job.key.phase == "train":
            self._rate = tf.Variable(0, dtype=framework.dtype, trainable=False)
            self._fast = framework.make_fast(self._update, list(self._weights.values()))
        else:
            # Weights may be stored in the type of inference; a quality run scores with the master weights.
            unit = tf.math.l2_normalize(self._weights["input"], axis=1, epsilon=1e-24)
            self._unit = tf.Variable(framework.compute(unit))
            self._fast = framework.make_fast(self._infer)

    def _differentiate(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, and the gradients by the rows that the batch names."""
        words = self._framework.compute(tf.gather(self._weights["input"], batch["words"]))
        targets = self._framework.compute(tf.gather(self._weights["output"], batch["targets"]))
        self._framework.observed.note(activations=words)
        return gradients(words, targets, batch["contexts"], batch["live"])

    def _update(self, batch: Batch) -> Tensor:
        losses, by_word, by_target = self._differentiate(batch)
        by_word *= (batch["word_share"] * self._rate)[:, None]
        by_target *= (batch["target_share"] * self._rate)[:, :, None]
        self._weights["input"].scatter_sub(tf.IndexedSlices(by_word, batch["words"]))
        self._weights["output"].scatter_sub(tf.IndexedSlices(by_target, batch["targets"]))
        self._framework.observed.note(weights=self._weights["input"], gradients=by_word)
        return tf.reduce_sum(losses) / tf.reduce_sum(batch["contexts"])

    def _scatter(self, batch: Batch) -> list[Tensor]:
        """The gradient by each table, dense."""
        _, *rows = self._differentiate(batch)
        found = []
        for weight, ids, gradient in zip(self._weights.values(), ("words", "targets"), rows, strict=True):
            found.append(tf.scatter_nd(batch[ids][..., None], gradient, weight.shape))
        return found

    def _infer(self, batch: Batch) -> Tensor:
        queries = batch["queries"]
        rows = tf.gather(self._unit, queries)
        similar = tf.cast(tf.matmul(rows, self._unit, transpose_b=True), self._framework.dtype)
        own = tf.one_hot(queries, similar.shape[1], dtype=similar.dtype)
        cosines, words = tf.math.top_k(similar - 3 * own, spec.NEIGHBOURS)  # no neighbour of its own
        self._framework.observed.note(weights=self._unit, activations=rows)
        return tf.stack((tf.cast(words, cosines.dtype), cosines), axis=1)

    def _normalised(self, words: Tensor) -> Tensor:
        return tf.math.l2_normalize(tf.gather(self._weights["input"], words), axis=1, epsilon=1e-24)

    def step(self, index: int) -> None:
        """One update, or the nearest words [batch, 2, 10] (ids, cosines) of a batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._job.key.phase == "train":
            self._rate.assign(spec.rate_of(self._job, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    def reset(self) -> None:
        """Initial weights, in place."""
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name].assign(self._framework.tensor(value))

    def collect(self) -> list[NDArray[Any]]:
        """Mean losses of a pair (scalars), or nearest words, since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Both tables by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the summed loss of batch ``index`` by canonical name, dense."""
        found = self._dense(self._framework.feed(self._data, index), None)
        return {n: self._framework.array(g) for n, g in zip(self._weights, found, strict=True)}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Loss of each pair of batch ``index``, [C, 2W + 1]; zero where there is none."""
        return self._framework.array(self._losses(self._framework.feed(self._data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """Rows of the input table for ``words`` [n], of length one: ``vectors`` float32 [n, D]."""
        found = self._rows({"words": self._framework.tensor(arrays["words"])}, None)
        return {"vectors": self._framework.array(found).astype(np.float32)}
