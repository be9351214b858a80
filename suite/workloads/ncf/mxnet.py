"""NeuMF in MXNet Gluon, hybridized."""

from __future__ import annotations

from typing import Any

import numpy as np
from mxnet import autograd, gluon
from numpy.typing import NDArray

from suite.frameworks.mxnet import Adam, Framework, Tensor
from suite.frameworks.mxnet_layers import rectified
from suite.workloads import weights
from suite.workloads.contract import Data, Job
from suite.workloads.ncf import spec

Arrays = dict[str, NDArray[Any]]


class NeuMF(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Logits [n] of users [n] and items [n]; parameters under canonical names."""

    def __init__(self, dims: spec.Dimensions, framework: Framework) -> None:
        super().__init__(prefix="")
        self._dims, self._dtype = dims, framework.dtype
        for parameter in spec.parameters(dims):
            attribute = parameter.name.replace(".", "_")
            value = self.params.get(parameter.name, shape=parameter.shape, dtype=self._dtype)
            setattr(self, attribute, value)

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
    """Mean binary cross-entropy with logits; written out, since Gluon's softplus loses float64."""

    def __init__(self, model: NeuMF) -> None:
        super().__init__(prefix="")
        self.model = model

    def hybrid_forward(self, F: Any, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """See the class."""
        found = self.model(users, items)
        return F.mean(F.relu(found) - found * labels + F.log1p(F.exp(-F.abs(found))))


class Scores(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Sigmoid of the logits."""

    def __init__(self, model: NeuMF) -> None:
        super().__init__(prefix="")
        self.model = model

    def hybrid_forward(self, F: Any, users: Tensor, items: Tensor) -> Tensor:
        """See the class."""
        return F.sigmoid(self.model(users, items))


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._hyper, self._framework, self._data = job.hyper, framework, data
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._specified = spec.parameters(dims)
        self._model = NeuMF(dims, framework)
        self._model.initialize(ctx=framework.context)
        found = self._model.collect_params()
        self._weights: dict[str, Tensor] = {p.name: found[p.name].data() for p in self._specified}
        self._gradients: dict[str, Tensor] = {p.name: found[p.name].grad() for p in self._specified}
        self._load()
        self._training = job.key.phase == "train"
        self._results = framework.results(self._weights.values())
        if self._training:
            self._adam = Adam(list(self._weights.values()), job.hyper)
        self._loss = framework.make_fast(MeanLoss(self._model))
        self._scores = framework.make_fast(Scores(self._model))
        framework.observed.note(weights=self._weights["mf.user"])

    def _load(self) -> None:
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name][:] = self._framework.tensor(value)

    def _differentiate(self, index: int) -> Tensor:
        """The mean loss of batch ``index``; leaves its gradients in the parameters' gradient arrays."""
        batch = self._framework.feed(self._data, index)
        with autograd.record():
            loss = self._loss(batch["users"], batch["items"], batch["labels"])
        loss.backward()
        self._framework.observed.note(activations=loss, gradients=self._gradients["mf.user"])
        return loss

    def step(self, index: int) -> None:
        """One update of Adam, or the scores (sigmoid) of one batch, kept on the device."""
        if self._training:
            self._adam.set_rate(spec.learning_rate(self._hyper, index))
            self._results.keep(self._differentiate(index))
            self._adam.update(list(self._gradients.values()))
        else:
            batch = self._framework.feed(self._data, index)
            scores = self._scores(batch["users"], batch["items"])
            self._framework.observed.note(activations=scores)
            self._results.keep(scores)

    def reset(self) -> None:
        """Initial weights and an empty optimiser, in place."""
        self._load()
        if self._training:
            self._adam.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or scores [batch], since the last call."""
        found = self._results.collect()
        return [loss.reshape(()) for loss in found] if self._training else found  # MXNet has no scalars

    def parameters(self) -> Arrays:
        """Weights by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the mean loss of batch ``index`` by canonical name."""
        self._differentiate(index)
        return {name: self._framework.array(gradient) for name, gradient in self._gradients.items()}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        batch = self._framework.feed(self._data, index)
        return self._framework.array(self._model(batch["users"], batch["items"]))

    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without the ties of saturation."""
        items = arrays["items"]
        users = np.repeat(arrays["users"], items.shape[1])
        tensor = self._framework.tensor
        found = self._framework.array(self._model(tensor(users), tensor(items.reshape(-1))))
        return {"scores": found.reshape(items.shape).astype(np.float32)}
