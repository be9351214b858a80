"""Image classifiers in MXNet Gluon, hybridized: one pair for every network."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from numpy.typing import NDArray

from suite import workloads
from suite.frameworks import mxnet_layers as layers
from suite.frameworks.mxnet import Batch, Framework, Momentum, Tensor, clip_by_global_norm
from suite.workloads import folding, weights
from suite.workloads import layers as network_layers
from suite.workloads._classification.predictions import best
from suite.workloads.contract import Data, Job

Arrays = dict[str, NDArray[Any]]


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        spec: Any = workloads.specification(job.key.workload)
        self._spec = spec
        dims = spec.dimensions(job.key.scale, job.key.variant)
        self._network, self._specified = spec.network(dims), spec.parameters(dims)
        self._pixels = [
            framework.tensor(np.array([float(value) for value in values]))
            for values in (spec.MEAN, spec.SCALE)
        ]
        self.dropout = layers.Dropout(job.number("dropout"))
        self._training = job.key.phase == "train"
        self._make_blocks()
        self._results = framework.results(self._weights.values())
        self._load()
        framework.observed.note(weights=next(iter(self._weights.values())))
        if self._training:
            self._gradients = {name: self._shared[name].grad() for name in self._weights}
            decayed = network_layers.decayed(self._network)
            at = [index for index, name in enumerate(self._weights) if name in decayed]
            self._momentum = Momentum(list(self._weights.values()), job.hyper, at)
        else:
            self._folded = self._fold()

    def _make_blocks(self) -> None:
        model = layers.Logits(self._network, self._specified, self._framework.dtype)
        self._shared = model.collect_params()
        self._shared.initialize(ctx=self._framework.context)
        if not self._training:
            self._shared.setattr("grad_req", "null")
        self._weights: dict[str, Tensor] = {p.name: self._shared[p.name].data() for p in self._specified}
        statistics = folding.initial_statistics(self._network)
        self._running: dict[str, Tensor] = {name: self._shared[name].data() for name in statistics}
        self._logits = self._framework.make_fast(model)
        self._loss = self._framework.make_fast(
            layers.Loss(
                self._network,
                self._specified,
                self._framework.dtype,
                self.dropout,
                self._shared,
                smoothing=self._job.number("smoothing"),
            )
        )

    def _load(self) -> None:
        for name, value in weights.initial(self._spec.NAME, self._specified):
            self._weights[name][:] = self._framework.tensor(value)
        for name, value in folding.initial_statistics(self._network).items():
            self._running[name][:] = self._framework.tensor(value)

    def _fold(self) -> Any:
        statistics = folding.expected_statistics(self._network)
        found = folding.fold(self._network, self.parameters(), statistics)
        folded = network_layers.folded(self._network)
        block = layers.Logits(folded, network_layers.parameters(folded), self._framework.dtype)
        parameters = block.collect_params()
        parameters.initialize(ctx=self._framework.context)
        parameters.setattr("grad_req", "null")
        for name, value in found.items():
            parameters[name].set_data(self._framework.tensor(value))
        return self._framework.make_fast(block)

    def _differentiate(self, batch: Batch) -> Tensor:
        """The mean loss; leaves its gradients in the parameters' arrays, and moves the running statistics."""
        with autograd.record():
            loss = self._loss(batch["images"], *self._pixels, batch["labels"])
        loss.backward()
        first = next(iter(self._gradients.values()))
        self._framework.observed.note(activations=loss, gradients=first)
        return loss

    def _update(self, batch: Batch) -> Tensor:
        loss = self._differentiate(batch)
        gradients = list(self._gradients.values())
        if limit := self._job.number("clip"):
            gradients, _ = clip_by_global_norm(gradients, limit)
        self._momentum.update(gradients)
        return loss

    def step(self, index: int) -> None:
        """One update, or the logits [batch, classes] of one batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._training:
            self._momentum.set_rate(self._spec.rate_of(self._job, index))
            self._results.keep(self._update(batch))
        else:
            logits = self._folded(batch["images"], *self._pixels)
            self._framework.observed.note(activations=logits)
            self._results.keep(logits)

    def reset(self) -> None:
        """Initial weights and statistics, an empty optimiser, and the dropout stream from its start."""
        mx.random.seed(self._job.seed % 2**31)
        if self._training:
            self._framework.synchronize()  # see gradients
            self._load()
            self._momentum.reset()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars), or logits, since the last call."""
        found = self._results.collect()
        return [loss.reshape(()) for loss in found] if self._training else found  # MXNet has no scalars

    def parameters(self) -> Arrays:
        """Weights by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the mean loss of batch ``index``, without weight decay; statistics stay as they are.

        The backward pass moves the running statistics without the engine's knowing: what reads or writes them
        waits for it only by way of the gradients.
        """
        kept = {name: tensor.copy() for name, tensor in self._running.items()}
        self._framework.synchronize()
        self._differentiate(self._framework.feed(self._data, index))
        found = {name: self._framework.array(gradient) for name, gradient in self._gradients.items()}
        for name, tensor in kept.items():
            self._running[name][:] = tensor
        return found

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by its own statistics."""
        with autograd.train_mode():
            found = self._logits(self._framework.feed(self._data, index)["images"], *self._pixels)
        return self._framework.array(found)

    def evaluated(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch, classes] of batch ``index``, normalised by the running statistics."""
        found = self._logits(self._framework.feed(self._data, index)["images"], *self._pixels)
        return self._framework.array(found)

    def predict(self, arrays: Arrays) -> Arrays:
        """``top5`` and ``index`` of a batch of the evaluation: see :func:`best`."""
        found = self._logits(self._framework.tensor(arrays["images"]), *self._pixels)
        return best(self._framework.array(found), arrays["index"])
