"""Image classifiers in PyTorch: one pair for every network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite.common import folding
from suite.common import layers as network_layers
from suite.frameworks.base import Arrays
from suite.frameworks.pytorch import layers
from suite.frameworks.pytorch.checked import Checked
from suite.frameworks.pytorch.framework import Batch
from suite.frameworks.pytorch.pair import BasePair
from suite.workloads._classification.predictions import best

# Networks that cuDNN's search makes no faster: resnet50 5,777 images/s with it and 5,798 without, where a
# start takes 17 s less (H100, bf16, batch 256); resnet152 3,635 and 3,655, no start saved (H200, 256). It
# makes googlenet 4.7 % faster, alexnet and inception_v3 2 % (H200), vgg16 2.7 % (H100). Others: not measured.
NOT_SEARCHED = ("resnet50", "resnet152")


class Pair(BasePair):
    """A network of the family. Each update also updates the running statistics; inference has them folded in.

    Products are in the compute type.
    """

    compiled = ("loss",)  # inference is compiled and checked

    def build(self) -> None:
        """Make the network, its running statistics and its dropout."""
        framework = self.framework
        if self.spec.NAME in NOT_SEARCHED:
            self.skip_search()
        self._network = self.spec.network(self.dims)
        self._mean, self._scale = (
            framework.tensor(np.array([float(value) for value in values]))
            for values in (self.spec.MEAN, self.spec.SCALE)
        )
        self.dropout = layers.Dropout(self.job.number("dropout"))
        self._running = layers.Statistics(self._network, framework.tensor)
        self.state = list(self._running.named.values())
        self._forward = Checked(
            framework.compile(self._folded_logits), self._folded_logits, framework.compute_dtype
        )

    def layout(self, tensor: Tensor) -> Tensor:
        """Convolution kernels in the images' memory layout."""
        return layers.stored(tensor)

    def decayed(self) -> Collection[str]:
        """See :func:`suite.common.layers.decayed`."""
        return network_layers.decayed(self._network)

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of the folded network."""
        statistics = folding.expected_statistics(self._network)
        folded = folding.fold(self._network, self.parameters(), statistics)
        dtype, tensor = self.framework.compute_dtype, self.framework.tensor
        self._folded, folded = folding.one_bias(network_layers.folded(self._network), folded)
        return {name: layers.stored(tensor(value).to(dtype)) for name, value in folded.items()}

    def observe(self) -> None:
        """Note the type of one image's logits."""
        side = self.dims.image
        image = torch.zeros((1, side, side, 3), dtype=torch.uint8, device=self.framework.device)
        searches = torch.backends.cudnn.benchmark
        if self.job.key.batch > 1:  # no step has these shapes: do not search for their fastest algorithms
            torch.backends.cudnn.benchmark = False  # cuDNN would keep this choice for steps of one image
        try:
            self.framework.observed.note(activations=self._logits(image, self._running.named))
        finally:
            torch.backends.cudnn.benchmark = searches

    def _pixels(self, images: Tensor) -> Tensor:
        return layers.pixels(images, self._mean, self._scale, self.framework.compute_dtype)

    def _logits(self, images: Tensor, running: Mapping[str, Tensor] | None) -> Tensor:
        return layers.compute(self._network, self._pixels(images), layers.Pass(self.masters, running))

    def loss(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Mean smoothed cross entropy, and the statistics of the batch."""
        run = layers.Pass(self.masters, dropout=self.dropout)
        logits = layers.compute(self._network, self._pixels(batch["images"]), run).to(self.framework.dtype)
        labels, smoothing = batch["labels"].long(), self.job.number("smoothing")
        return F.cross_entropy(logits, labels, label_smoothing=smoothing), list(run.seen.values())

    def carry(self, carried: list[Tensor]) -> None:
        """Update the running statistics by those of the batch."""
        self._running.update(carried)

    def _folded_logits(self, images: Tensor) -> Tensor:
        logits = layers.compute(self._folded, self._pixels(images), layers.Pass(self.stored))
        return logits.to(self.framework.dtype)

    def infer(self, batch: Batch) -> Tensor:
        """Logits [batch, classes]."""
        return self._forward(batch["images"])

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        images = self.framework.feed(self.data, index)["images"]
        return self.framework.array(self._logits(images, None))

    @torch.no_grad()
    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        images = self.framework.feed(self.data, index)["images"]
        return self.framework.array(self._logits(images, self._running.named))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of an evaluation batch: see :func:`best`."""
        logits = self._logits(self.framework.tensor(arrays["images"]), self._running.named)
        return best(self.framework.array(logits), arrays["index"])
