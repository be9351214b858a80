"""NeuMF in TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow.framework import Batch, Framework, Tensor
from suite.frameworks.tensorflow.pair import BasePair


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
    framework.observed.note(activations=hidden)
    return tf.cast(score, framework.dtype)


class Pair(BasePair):
    """NeuMF. Evaluations of quality runs use the master weights in every precision."""

    def build(self) -> None:
        """Make the function for outputs and evaluation."""
        self._scores = self.framework.make_fast(self._logits)

    def _logits(self, batch: Batch) -> Tensor:
        return logits(self.masters, batch["users"], batch["items"], self.framework)

    def loss(self, batch: Batch) -> Tensor:
        """Binary cross entropy, the mean over the samples of the batch."""
        scores, labels = self._logits(batch), batch["labels"]
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores))

    def infer(self, batch: Batch) -> Tensor:
        """Scores (sigmoid) [batch]."""
        return tf.sigmoid(logits(self.stored, batch["users"], batch["items"], self.framework))

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        return self.framework.array(self._scores(self.framework.feed(self.data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without ties by saturation."""
        items = arrays["items"]
        users = np.repeat(arrays["users"], items.shape[1])
        tensor = self.framework.tensor
        batch = {"users": tensor(users), "items": tensor(items.reshape(-1))}
        scores = self.framework.array(self._scores(batch, None))
        return {"scores": scores.reshape(items.shape).astype(np.float32)}
