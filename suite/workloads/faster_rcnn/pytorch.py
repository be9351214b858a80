"""Faster R-CNN in PyTorch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.framework import Batch
from suite.frameworks.pytorch.pair import BasePair
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.backbone import Start
from suite.workloads.faster_rcnn.data import predictions
from suite.workloads.faster_rcnn.pytorch_model import Model


class Pair(BasePair):
    """The detector. The first stages of its backbone are frozen and its normalisations are fixed."""

    chooses = True
    compiled = ("loss",)  # detection is compiled for evaluations too

    def build(self) -> None:
        """Make the networks and read their initial values."""
        self._start, self.frozen = Start.of(self.job), spec.frozen(self.dims)
        framework = self.framework
        kernels = framework.cuda and framework.fast and not self.job.deterministic
        self._model = Model(self.dims, framework, self._start.norms(), kernels)
        self._detect = framework.compile(self._model.detect)
        self.skip_search()  # a step takes 42.97 ms with the search, 42.94 without (H100, bf16, batch 8)

    def initial_weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """See :class:`suite.workloads.faster_rcnn.backbone.Start`."""
        return self._start.weights()

    def fixed_parameters(self) -> Arrays:
        """The normalisations of a trained backbone."""
        return self._start.fixed()

    def decayed(self) -> Collection[str]:
        """All trained parameters."""
        return self.trained

    def loss(self, batch: Batch) -> Tensor:
        """The sum of the four losses."""
        return self._model.loss(self.masters, batch)

    def infer(self, batch: Batch) -> Tensor:
        """Detections [batch, n, 6]."""
        return self._detect(self.stored, batch)

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Scores and boxes of all anchors and of the sampled regions of batch ``index``, flattened."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._model.raw(self.masters, batch))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Detections by image: ``boxes`` [n, k, 4] in pixels of the resized image, ``scores``, ``labels``."""
        batch = {name: self.framework.tensor(arrays[name]) for name in ("images", "sizes")}
        return predictions(self.framework.array(self._detect(self.masters, batch)), arrays["image"])
