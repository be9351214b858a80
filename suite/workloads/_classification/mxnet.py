"""Image classifiers in MXNet Gluon, hybridized: one pair for every network."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from mxnet import autograd
from numpy.typing import NDArray

from suite.common import folding
from suite.common import layers as network_layers
from suite.frameworks.mxnet import layers
from suite.frameworks.mxnet.framework import Batch, Tensor
from suite.frameworks.mxnet.pair import BasePair
from suite.frameworks.mxnet.parameters import add_constants, new_parameters
from suite.workloads._classification.predictions import best

Arrays = dict[str, NDArray[Any]]


class Pair(BasePair):
    """A network of the family. Inference returns logits [batch, classes] of the folded network.

    MXNet updates the running statistics in the backward pass.
    """

    def build(self) -> None:
        """Make the network, its running statistics, its dropout and the blocks for logits and loss."""
        self._network = self.spec.network(self.dims)
        self._pixels = [
            self.framework.tensor(np.array([float(value) for value in values]))
            for values in (self.spec.MEAN, self.spec.SCALE)
        ]
        self.dropout = layers.Dropout(self.job.number("dropout"))
        self.state = add_constants(self.shared, self.framework, folding.initial_statistics(self._network))
        parts = self.shared, self._network, self.framework.dtype
        self._logits = self.framework.make_fast(layers.Logits(*parts))
        smoothing = self.job.number("smoothing")
        self._loss = self.framework.make_fast(layers.Loss(*parts, self.dropout, smoothing=smoothing))

    def inference_weights(self) -> dict[str, Tensor]:
        """Weights with the normalisation folded in, by the statistics expected of the initial weights."""
        statistics = folding.expected_statistics(self._network)
        folded = folding.fold(self._network, self.parameters(), statistics)
        network, folded = folding.one_bias(network_layers.folded(self._network), folded)
        parameters = new_parameters(self.framework, network_layers.parameters(network))
        for name, value in folded.items():
            parameters[name].set_data(self.framework.tensor(value))
        block = layers.Logits(parameters, network, self.framework.dtype)
        self._folded = self.framework.make_fast(block)
        return {name: parameters[name].data() for name in folded}

    def decayed(self) -> Collection[str]:
        """See :func:`suite.common.layers.decayed`."""
        return network_layers.decayed(self._network)

    def loss(self, batch: Batch) -> Tensor:
        """Smoothed cross entropy, the mean over the images of the batch."""
        return self._loss(batch["images"], *self._pixels, batch["labels"])

    def infer(self, batch: Batch) -> Tensor:
        """Logits [batch, classes]."""
        return self._folded(batch["images"], *self._pixels)

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        with autograd.train_mode():
            logits = self._logits(self.framework.feed(self.data, index)["images"], *self._pixels)
        return self.framework.array(logits)

    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        logits = self._logits(self.framework.feed(self.data, index)["images"], *self._pixels)
        return self.framework.array(logits)

    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of an evaluation batch: see :func:`best`."""
        logits = self._logits(self.framework.tensor(arrays["images"]), *self._pixels)
        return best(self.framework.array(logits), arrays["index"])
