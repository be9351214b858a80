"""Faster R-CNN in TensorFlow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow.framework import Batch, Tensor
from suite.frameworks.tensorflow.pair import BasePair
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.backbone import Start
from suite.workloads.faster_rcnn.data import predictions
from suite.workloads.faster_rcnn.tensorflow_model import Model


class Pair(BasePair):
    """The detector. The first stages of its backbone are frozen and its normalisations are fixed."""

    chooses = True
    channels_last = True

    def build(self) -> None:
        """Make the networks and read their initial values; quality runs evaluate with the masters."""
        self._start, self.frozen = Start.of(self.job), spec.frozen(self.dims)
        self._model = Model(self.dims, self.framework, self._start.norms())
        fast = self.framework.make_fast
        self._raw = fast(lambda batch: self._model.raw(self.masters, batch))
        self._predict = fast(lambda batch: self._model.detect(self.masters, batch))

    def initial_weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """See :class:`suite.workloads.faster_rcnn.backbone.Start`."""
        return self._start.weights()

    def fixed_parameters(self) -> Arrays:
        """The normalisations of a trained backbone."""
        return self._start.fixed()

    def decayed(self) -> Collection[str]:
        """All trained parameters."""
        return self.masters.keys() - set(self.frozen)

    def loss(self, batch: Batch) -> Tensor:
        """The sum of the four losses."""
        return self._model.loss(self.masters, batch)

    def infer(self, batch: Batch) -> Tensor:
        """Detections [batch, n, 6]."""
        return self._model.detect(self.stored, batch)

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Scores and boxes of all anchors and of the sampled regions of batch ``index``, flattened."""
        return self.framework.array(self._raw(self.framework.feed(self.data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """Detections by image: ``boxes`` [n, k, 4] in pixels of the resized image, ``scores``, ``labels``."""
        batch = {name: self.framework.tensor(arrays[name]) for name in ("images", "sizes")}
        return predictions(self.framework.array(self._predict(batch, None)), arrays["image"])
