"""Image classifiers in TensorFlow: one pair for every network."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.common import channels_last, folding
from suite.common import layers as network_layers
from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow import layers
from suite.frameworks.tensorflow.framework import Batch, Tensor
from suite.frameworks.tensorflow.pair import BasePair
from suite.workloads._classification.predictions import best


class Pair(BasePair):
    """A network of the family. Each update also updates the running statistics; inference has them folded in.

    Products are in the compute type.
    """

    channels_last = True

    def build(self) -> None:
        """Make the network, its running statistics and its dropout."""
        tensor = self.framework.tensor
        self._network = self.spec.network(self.dims)
        self._mean, self._scale = (
            tensor(np.array([float(value) for value in values]))
            for values in (self.spec.MEAN, self.spec.SCALE)
        )
        self.dropout = layers.Dropout(self.job.number("dropout"))
        self._running = layers.Statistics(self._network, tensor)
        self.state = [self._running.variable]
        self._evaluate = self.framework.make_fast(
            lambda batch: self._logits(batch["images"], self._running.named())
        )

    def decayed(self) -> Collection[str]:
        """See :func:`suite.common.layers.decayed`."""
        return network_layers.decayed(self._network)

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of the folded network."""
        statistics = folding.expected_statistics(self._network)
        folded = folding.fold(self._network, self.parameters(), statistics)
        compute, tensor = self.framework.compute, self.framework.tensor
        self._folded, folded = folding.one_bias(network_layers.folded(self._network), folded)
        return {name: compute(tensor(channels_last.stored(value))) for name, value in folded.items()}

    def _compute(self, network: network_layers.Network, images: Tensor, run: layers.Pass) -> Tensor:
        """Logits [batch, classes], in the type of the parameters."""
        pixels = layers.pixels(images, self._mean, self._scale, self.framework.compute_dtype)
        logits = layers.compute(network, pixels, run)
        self.framework.observed.note(activations=logits)
        return tf.cast(logits, self.framework.dtype)

    def _logits(self, images: Tensor, running: Any) -> Tensor:
        return self._compute(self._network, images, layers.Pass(self.masters, running))

    def loss(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Mean smoothed cross entropy, and the statistics of the batch."""
        run = layers.Pass(self.masters, dropout=self.dropout)
        log_p = tf.nn.log_softmax(self._compute(self._network, batch["images"], run))
        chosen = tf.gather(log_p, batch["labels"], axis=1, batch_dims=1)
        smoothing = self.job.number("smoothing")
        rows = (1.0 - smoothing) * chosen + smoothing * tf.reduce_mean(log_p, axis=1)
        return -tf.reduce_mean(rows), list(run.seen.values())

    def carry(self, carried: list[Tensor]) -> None:
        """Update the running statistics by those of the batch."""
        self._running.update(carried)

    def infer(self, batch: Batch) -> Tensor:
        """Logits [batch, classes]."""
        return self._compute(self._folded, batch["images"], layers.Pass(self.stored))

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        return self.framework.array(self._logits(self.framework.feed(self.data, index)["images"], None))

    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        images = self.framework.feed(self.data, index)["images"]
        return self.framework.array(self._logits(images, self._running.named()))

    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of an evaluation batch: see :func:`best`."""
        batch = {"images": self.framework.tensor(arrays["images"])}
        return best(self.framework.array(self._evaluate(batch, None)), arrays["index"])
