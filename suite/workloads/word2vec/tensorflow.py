"""Skip-gram with negative sampling in TensorFlow, with explicit gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow.framework import Batch, Descent, Tensor
from suite.frameworks.tensorflow.pair import BasePair
from suite.workloads.word2vec import spec


def errors(scores: Tensor, contexts: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each context [C, 2W + 1], and the derivative with respect to each score.

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
    """Losses [C, 2W + 1], and the gradients of their sum with respect to the rows ``words`` and ``targets``.

    ``words`` [C + 2W, D] and ``targets`` [C, 1 + K, D] are rows of the tables, in the compute type.
    """
    (count, span), full = contexts.shape, contexts.dtype
    windows = tf.stack([words[offset : offset + count] for offset in range(span)], axis=1)
    losses, error = errors(tf.cast(tf.matmul(targets, windows, transpose_b=True), full), contexts, live)
    error = tf.cast(error, words.dtype)
    by_target = tf.cast(tf.matmul(error, windows), full)
    by_context = tf.cast(tf.matmul(error, targets, transpose_a=True), full)
    shifted = [tf.pad(by_context[:, at], [[at, span - 1 - at], [0, 0]]) for at in range(span)]
    return losses, tf.add_n(shifted), by_target


class Pair(BasePair):
    """Both tables. Gradient and update are fused, because only the rows that a batch names have gradients.

    The pair therefore overrides ``update`` and ``gradients`` and has no loss to differentiate.
    """

    optimiser: Descent

    def build(self) -> None:
        """Make the functions beside the step; evaluations use the master weights in every precision."""
        fast = self.framework.make_fast
        self._differentiate_rows = self.framework.part(self._by_rows)
        self._losses = fast(lambda batch: self._by_rows(batch)[0])
        self._tables = fast(self._scatter, exchanges=True)
        self._rows = fast(lambda batch: _unit(tf.gather(self.masters["input"], batch["words"])))

    def inference_weights(self) -> dict[str, Tensor]:
        """The input table with its rows normalised to length one."""
        return {"unit": self.framework.compute(_unit(self.masters["input"]))}

    def _by_rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, and the gradients of the rows that the batch names."""
        words = self.framework.compute(tf.gather(self.masters["input"], batch["words"]))
        targets = self.framework.compute(tf.gather(self.masters["output"], batch["targets"]))
        self.framework.observed.note(activations=words)
        return gradients(words, targets, batch["contexts"], batch["live"])

    def update(self, batch: Batch) -> Tensor:
        """Gradient descent on the rows that the batch names; returns the mean loss of a pair of words.

        With several ranks the loss is the rank's share of the global batch's mean, and the ranks exchange the
        sums of their rows as whole tables: adding up rows on a GPU has no fixed order, so that ranks which
        add the rows of all ranks on their own would differ in the last bits.
        """
        exchange = self.framework.exchange
        losses, by_word, by_target = self._differentiate_rows(batch)
        rate = -self.optimiser.rate
        by_word *= (batch["word_share"] * rate)[:, None]
        by_target *= (batch["target_share"] * rate)[:, :, None]
        self.framework.observed.note(weights=self.masters["input"], gradients=by_word)
        pairs = tf.reduce_sum(batch["contexts"])
        if exchange.active:
            *changes, pairs = exchange.total([*self._as_tables(batch, by_word, by_target), pairs])
            for table, change in zip(self.masters.values(), changes, strict=True):
                table.assign_add(change)
        else:
            # Added: a GPU adds atomically, and retries a subtraction until no other thread interferes.
            self.masters["input"].scatter_add(tf.IndexedSlices(by_word, batch["words"]))
            self.masters["output"].scatter_add(tf.IndexedSlices(by_target, batch["targets"]))
        return tf.reduce_sum(losses) / pairs / self.job.replicas

    def _as_tables(self, batch: Batch, by_word: Tensor, by_target: Tensor) -> list[Tensor]:
        """The sums of the rows of ``words`` and of ``targets``, as tables."""
        parts = zip(("words", "targets"), (by_word, by_target), self.masters.values(), strict=True)
        return [tf.scatter_nd(batch[ids][..., None], rows, table.shape) for ids, rows, table in parts]

    def _scatter(self, batch: Batch) -> list[Tensor]:
        """The dense gradient of each table, summed over all ranks."""
        _, *rows = self._differentiate_rows(batch)
        return self.framework.exchange.total(self._as_tables(batch, *rows))

    def infer(self, batch: Batch) -> Tensor:
        """Nearest words [batch, 2, 10] (ids, cosines) of ``queries``."""
        unit, queries = self.stored["unit"], batch["queries"]
        rows = tf.gather(unit, queries)
        similar = tf.cast(tf.matmul(rows, unit, transpose_b=True), self.framework.dtype)
        itself = tf.one_hot(queries, similar.shape[1], dtype=similar.dtype)
        cosines, words = tf.math.top_k(similar - 3 * itself, spec.NEIGHBOURS)  # not its own neighbour
        self.framework.observed.note(activations=rows)
        return tf.stack((tf.cast(words, cosines.dtype), cosines), axis=1)

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index``, summed over all ranks, by canonical name, dense."""
        dense = self._tables(self.framework.feed(self.data, index), None)
        return {n: self.framework.array(g) for n, g in zip(self.masters, dense, strict=True)}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """The loss of each pair of batch ``index``, [C, 2W + 1]; zero where there is no pair."""
        return self.framework.array(self._losses(self.framework.feed(self.data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """Normalised rows of the input table for ``words`` [n]: ``vectors`` float32 [n, D]."""
        vectors = self._rows({"words": self.framework.tensor(arrays["words"])}, None)
        return {"vectors": self.framework.array(vectors).astype(np.float32)}


def _unit(rows: Tensor) -> Tensor:
    return tf.math.l2_normalize(rows, axis=1, epsilon=1e-24)
