"""NeuMF in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite.frameworks.pytorch import Adam, Batch, Framework
from suite.workloads import weights
from suite.workloads.contract import Data, Job
from suite.workloads.ncf import spec

Arrays = dict[str, NDArray[Any]]


def logits(weight: dict[str, Tensor], users: Tensor, items: Tensor, layers: int) -> Tensor:
    """Scores before the sigmoid, [n], for users [n] and items [n]."""
    product = F.embedding(users, weight["mf.user"]) * F.embedding(items, weight["mf.item"])
    halves = F.embedding(users, weight["mlp.user"]), F.embedding(items, weight["mlp.item"])
    hidden = torch.cat(halves, dim=1)
    for layer in range(1, layers + 1):
        hidden = F.relu(F.linear(hidden, weight[f"mlp.{layer}.weight"], weight[f"mlp.{layer}.bias"]))
    joined = torch.cat((product.to(hidden.dtype), hidden), dim=1)
    return F.linear(joined, weight["output.weight"], weight["output.bias"]).squeeze(1)


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._hyper, self._framework, self._data = job.hyper, framework, data
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._layers = len(dims.layers) - 1
        self._specified = spec.parameters(dims)
        self._weights: dict[str, Tensor] = {}
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name] = framework.tensor(value).requires_grad_(True)
        self._training = job.key.phase == "train"
        self._results = framework.results()
        self._mean_loss = framework.compile(self._loss)
        self._forward = framework.compile(self._scores)
        if self._training:
            self._adam = Adam(list(self._weights.values()), job.hyper)
            state = [*self._weights.values(), *self._adam.state]
            self._fast = framework.make_fast(self._update, state)
        else:
            # Weights may be stored in the type of inference; a quality run scores with the master weights.
            self._stored = {n: w.detach().to(framework.compute_dtype) for n, w in self._weights.items()}
            self._fast = framework.make_fast(self._infer)
        self._observe()

    @torch.no_grad()
    def _observe(self) -> None:
        """Note the type of one sample's score: a compiled function cannot."""
        one = torch.zeros(1, dtype=torch.int32, device=self._framework.device)
        if self._training:
            with self._framework.autocast():
                found = logits(self._weights, one, one, self._layers)
        else:
            found = logits(self._stored, one, one, self._layers)
        self._framework.observed.note(activations=found)

    def _loss(self, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        with self._framework.autocast():
            found = logits(self._weights, users, items, self._layers)
        return F.binary_cross_entropy_with_logits(found.to(labels.dtype), labels)

    def _differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        loss = self._mean_loss(batch["users"], batch["items"], batch["labels"])
        scaling = self._framework.scaling
        return loss, scaling.unscaled(torch.autograd.grad(scaling.scaled(loss), list(self._weights.values())))

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients = self._differentiate(batch)
        self._framework.observed.note(weights=self._weights["mf.user"], gradients=gradients[0])
        self._framework.scaling.update(self._adam, gradients)
        return loss.detach()

    def _scores(self, users: Tensor, items: Tensor) -> Tensor:
        found = logits(self._stored, users, items, self._layers)
        return torch.sigmoid(found.to(self._framework.dtype))

    @torch.no_grad()
    def _infer(self, batch: Batch) -> Tensor:
        self._framework.observed.note(weights=self._stored["mf.user"])
        return self._forward(batch["users"], batch["items"])

    def step(self, index: int) -> None:
        """One update of Adam, or the scores (sigmoid) of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._training:
            self._adam.set_rate(spec.learning_rate(self._hyper, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    @torch.no_grad()
    def reset(self) -> None:
        """Initial weights and an empty optimiser, in place."""
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name].copy_(self._framework.tensor(value))
        if self._training:
            self._adam.reset()
            self._framework.scaling.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or scores [batch], since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Master weights by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the mean loss of batch ``index`` by canonical name."""
        _, gradients = self._differentiate(self._framework.feed(self._data, index))
        return {n: self._framework.array(g) for n, g in zip(self._weights, gradients, strict=True)}

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        batch = self._framework.feed(self._data, index)
        with self._framework.autocast():
            found = logits(self._weights, batch["users"], batch["items"], self._layers)
        return self._framework.array(found)

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without the ties of saturation."""
        items = arrays["items"]
        users = np.repeat(arrays["users"], items.shape[1])
        tensor = self._framework.tensor
        with self._framework.autocast():
            found = logits(self._weights, tensor(users), tensor(items.reshape(-1)), self._layers)
        return {"scores": self._framework.array(found).reshape(items.shape).astype(np.float32)}
