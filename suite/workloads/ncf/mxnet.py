"""NeuMF in MXNet Gluon, hybridized."""

from __future__ import annotations

from typing import Any

import numpy as np
from mxnet import gluon
from numpy.typing import NDArray

from suite.frameworks.mxnet.framework import Batch, Tensor
from suite.frameworks.mxnet.layers import rectified
from suite.frameworks.mxnet.pair import BasePair
from suite.frameworks.mxnet.parameters import Block
from suite.workloads.ncf import spec

Arrays = dict[str, NDArray[Any]]


class NeuMF(Block):
    """Logits [n] of users [n] and items [n]."""

    def __init__(self, shared: Any, dims: spec.Dimensions, dtype: str) -> None:
        super().__init__(shared)
        self._dims, self._dtype = dims, dtype

    def hybrid_forward(self, F: Any, users: Tensor, items: Tensor, **weight: Tensor) -> Tensor:
        """See the class."""
        dims = self._dims

        def rows(ids: Tensor, name: str, count: int, width: int) -> Tensor:
            return F.Embedding(ids, weight[name], input_dim=count, output_dim=width, dtype=self._dtype)

        product = rows(users, "mf_user", dims.users, dims.factors) * rows(
            items, "mf_item", dims.items, dims.factors
        )
        halves = (
            rows(users, "mlp_user", dims.users, dims.half),
            rows(items, "mlp_item", dims.items, dims.half),
        )
        hidden = F.concat(*halves, dim=1)
        for layer, width in enumerate(dims.layers[1:], start=1):
            values = weight[f"mlp_{layer}_weight"], weight[f"mlp_{layer}_bias"]
            hidden = rectified(F, F.FullyConnected(hidden, *values, num_hidden=width))
        joined = F.concat(product, hidden, dim=1)
        score = F.FullyConnected(joined, weight["output_weight"], weight["output_bias"], num_hidden=1)
        return F.reshape(score, shape=(-1,))


class MeanLoss(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Mean binary cross-entropy of logits, written out because Gluon's softplus loses float64 precision."""

    def __init__(self, model: NeuMF) -> None:
        super().__init__(prefix="")
        self.model = model

    def hybrid_forward(self, F: Any, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """See the class."""
        logits = self.model(users, items)
        return F.mean(F.relu(logits) - logits * labels + F.log1p(F.exp(-F.abs(logits))))


class Scores(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Sigmoid of the logits."""

    def __init__(self, model: NeuMF) -> None:
        super().__init__(prefix="")
        self.model = model

    def hybrid_forward(self, F: Any, users: Tensor, items: Tensor) -> Tensor:
        """See the class."""
        return F.sigmoid(self.model(users, items))


class Pair(BasePair):
    """See :class:`suite.contract.Pair`. Inference returns scores (sigmoid) [batch]."""

    def build(self) -> None:
        """Make the model and the blocks for loss and scores."""
        self._model = NeuMF(self.shared, self.dims, self.framework.dtype)
        self._loss = self.framework.make_fast(MeanLoss(self._model))
        self._scores = self.framework.make_fast(Scores(self._model))

    def loss(self, batch: Batch) -> Tensor:
        """Binary cross entropy, the mean over the samples of the batch."""
        return self._loss(batch["users"], batch["items"], batch["labels"])

    def infer(self, batch: Batch) -> Tensor:
        """Scores [batch]."""
        return self._scores(batch["users"], batch["items"])

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._model(batch["users"], batch["items"]))

    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without ties by saturation."""
        items = arrays["items"]
        users = np.repeat(arrays["users"], items.shape[1])
        tensor = self.framework.tensor
        logits = self.framework.array(self._model(tensor(users), tensor(items.reshape(-1))))
        return {"scores": logits.reshape(items.shape).astype(np.float32)}
