"""Faster R-CNN in JAX."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.jax.framework import Tensor
from suite.frameworks.jax.pair import BasePair, Inputs
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.backbone import Start
from suite.workloads.faster_rcnn.data import predictions
from suite.workloads.faster_rcnn.jax_model import Model


class Pair(BasePair):
    """The detector. The first stages of its backbone are frozen and its normalisations are fixed."""

    chooses = True
    channels_last = True

    def build(self) -> None:
        """Make the networks and read their initial values; quality runs evaluate with the masters."""
        self._start, self.frozen = Start.of(self.job), spec.frozen(self.dims)
        self._model = Model(self.dims, self.framework, self._start.norms())
        self._raw = self.framework.make_fast(self._model.raw)
        self._detect = self.framework.make_fast(self._model.detect)

    def initial_weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """See :class:`suite.workloads.faster_rcnn.backbone.Start`."""
        return self._start.weights()

    def fixed_parameters(self) -> Arrays:
        """The normalisations of a trained backbone."""
        return self._start.fixed()

    def decayed(self) -> Collection[str]:
        """All trained parameters."""
        return self.trained.keys()

    def loss(self, inputs: Inputs) -> Tensor:
        """The sum of the four losses."""
        return self._model.loss(inputs.weights, inputs.batch)

    def infer(self, inputs: Inputs) -> Tensor:
        """Detections [batch, n, 6]."""
        return self._model.detect(inputs.weights, inputs.batch)

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Scores and boxes of all anchors and of the sampled regions of batch ``index``, flattened."""
        return self.framework.array(self._raw(self.local_masters(), self.framework.feed(self.data, index)))

    def predict(self, arrays: Arrays) -> Arrays:
        """Detections by image: ``boxes`` [n, k, 4] in pixels of the resized image, ``scores``, ``labels``."""
        batch = {name: self.framework.tensor(arrays[name]) for name in ("images", "sizes")}
        return predictions(self.framework.array(self._detect(self.local_masters(), batch)), arrays["image"])
