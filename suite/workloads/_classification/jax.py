"""Image classifiers in JAX: one pair for every network."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from suite.common import channels_last, folding
from suite.common import layers as network_layers
from suite.frameworks.base import Arrays
from suite.frameworks.jax import layers
from suite.frameworks.jax.framework import Tensor
from suite.frameworks.jax.pair import BasePair, Inputs, Weights
from suite.workloads._classification.predictions import best


class Pair(BasePair):
    """A network of the family. Each update also updates the running statistics; inference has them folded in.

    Products are in the compute type. ``state`` holds the running statistics.
    """

    channels_last = True

    def build(self) -> None:
        """Make the network, its running statistics and its dropout."""
        self._network = self.spec.network(self.dims)
        self._mean, self._scale = (
            np.array([float(value) for value in values], self.framework.dtype)
            for values in (self.spec.MEAN, self.spec.SCALE)
        )
        self.dropout = layers.Dropout(self.job.number("dropout"))
        self._running = layers.Statistics(self._network, self.framework.tensor)
        self.state = [self._running.initial]
        fast = self.framework.make_fast
        self._by_batch = fast(lambda weights, images: self._logits(images, layers.Pass(weights)))
        self._by_running = fast(
            lambda weights, state, images: self._logits(
                images, layers.Pass(weights, self._running.named(state[0]))
            )
        )

    def decayed(self) -> Collection[str]:
        """See :func:`suite.common.layers.decayed`."""
        return network_layers.decayed(self._network)

    def inference_weights(self) -> Weights:
        """The weights of the folded network."""
        statistics = folding.expected_statistics(self._network)
        folded = folding.fold(self._network, self.parameters(), statistics)
        compute, tensor = self.framework.compute, self.framework.tensor
        self._folded, folded = folding.one_bias(network_layers.folded(self._network), folded)
        return {name: compute(tensor(channels_last.stored(value))) for name, value in folded.items()}

    def _logits(
        self, images: Tensor, run: layers.Pass, network: network_layers.Network | None = None
    ) -> Tensor:
        """Logits [batch, classes] of ``network``, in the type of the parameters."""
        pixels = layers.pixels(images, self._mean, self._scale, self.framework.compute_dtype)
        logits = layers.compute(self._network if network is None else network, pixels, run)
        self.framework.observed.note(activations=logits)
        return logits.astype(self.framework.dtype)

    def loss(self, inputs: Inputs) -> tuple[Tensor, list[Tensor]]:
        """Mean smoothed cross entropy, and the running statistics updated with those of the batch."""
        run = layers.Pass(inputs.weights, dropout=self.dropout.keyed(inputs.key))
        log_p = jax.nn.log_softmax(self._logits(inputs.batch["images"], run))
        chosen = jnp.take_along_axis(log_p, inputs.batch["labels"][:, None], axis=1)[:, 0]
        smoothing = self.job.number("smoothing")
        rows = (1.0 - smoothing) * chosen + smoothing * jnp.mean(log_p, axis=1)
        return -jnp.mean(rows), [self._running.updated(inputs.state[0], run.seen)]

    def infer(self, inputs: Inputs) -> Tensor:
        """Logits [batch, classes]."""
        return self._logits(inputs.batch["images"], layers.Pass(inputs.weights), self._folded)

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        images = self.framework.feed(self.data, index)["images"]
        return self.framework.array(self._by_batch(self.local_masters(), images))

    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        return self._evaluate(self.framework.feed(self.data, index)["images"])

    def _evaluate(self, images: Tensor) -> NDArray[Any]:
        state = self.framework.exchange.local(self.state)
        return self.framework.array(self._by_running(self.local_masters(), state, images))

    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of an evaluation batch: see :func:`best`."""
        return best(self._evaluate(self.framework.tensor(arrays["images"])), arrays["index"])
