"""Base class of every pair in MXNet: weights, steps and updates; a workload adds model and loss."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import autograd
from numpy.typing import NDArray

from suite.contract import Data, Job
from suite.frameworks import base
from suite.frameworks.base import Arrays
from suite.frameworks.mxnet.framework import (
    Adam,
    Batch,
    Descent,
    Framework,
    Momentum,
    Tensor,
    clip_by_global_norm,
    global_norm,
)
from suite.frameworks.mxnet.parameters import new_parameters

Loss: TypeAlias = Tensor | tuple[Tensor, Any]


class BasePair(base.BasePair):
    """See :class:`suite.contract.Pair`. MXNet runs in fp32 and fp64, where no loss is scaled.

    ``shared`` is the ``ParameterDict`` of all blocks, ``masters`` holds its weights by canonical name,
    ``trained`` those that are updated, ``state`` the other arrays that steps change (running statistics, a
    recurrent state). In inference ``stored`` holds the weights. Blocks made by ``framework.make_fast`` are
    the fast path.
    """

    framework: Framework
    masters: dict[str, Tensor]
    stored: dict[str, Tensor]
    dense_gradients = True  # False: the pair computes gradients itself, without an array per weight

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        super().__init__(job, framework, data)
        specified = self.spec.parameters(self.dims)
        self.shared = new_parameters(framework, specified)
        self.masters = {p.name: self.shared[p.name].data() for p in specified}
        self.state: list[Tensor] = []
        self.build()
        self._load()
        self._initial_state = [tensor.copy() for tensor in self.state]
        self._results = framework.results(self.masters.values())
        self._clip = float(job.hyper.get("clip", "0")) if job.key.updates else 0.0
        self.trained = {name: master for name, master in self.masters.items() if name not in self.frozen}
        if self.training:
            self._gradients = self._make_gradients() if self.dense_gradients else []
            self.optimiser = self.make_optimiser() if job.key.updates else None
        else:
            self.stored = self.inference_weights()
        self.observe()

    def _make_gradients(self) -> list[Tensor]:
        for name in self.trained:
            self.shared[name].grad_req = "write"
        return [self.shared[name].grad() for name in self.trained]

    # ---- members that a workload's pair supplies or overrides ------------------------------------------
    @abstractmethod
    def build(self) -> None:
        """Create constants, dropout and blocks, set ``frozen`` and ``state``; weights are still zero."""

    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The output of one inference batch."""

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of inference; called after the initial weights are loaded."""
        return self.masters

    def make_optimiser(self) -> Any:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        return self.choose_optimiser(Adam, Momentum, Descent)

    # ---- a step ----------------------------------------------------------------------------------------
    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step; staged batches are computed like others."""
        del slot
        if self.training:
            return self.update(batch)
        output = self.infer(batch)
        self._note(self.stored, output)
        return output

    def update(self, batch: Batch) -> Tensor:
        """One update by the gradient of ``batch``; the loss, or [loss, norm] where ``keeps_norm``.

        Without an optimiser it computes the gradient and updates nothing (scenario ``forward_backward``).
        With several ranks the gradient is that of the global batch, and the loss is the rank's share of it.
        """
        loss, carried = self._loss_of(batch)
        gradients = self.differentiate_and_exchange(loss)
        if self.job.world_size > 1:
            loss = loss / self.job.world_size
        norm: Tensor = None
        if self._clip:
            gradients, norm = clip_by_global_norm(gradients, self._clip)
        elif self.keeps_norm:
            norm = global_norm(gradients)
        if self.optimiser is not None:
            self.optimiser.update(gradients)
        if carried is not None:
            self.carry(carried)
        if not self.keeps_norm:
            return loss
        return mx.nd.concat(loss.reshape((1,)), norm.reshape((1,)), dim=0)

    def _loss_of(self, batch: Batch) -> tuple[Tensor, Any]:
        with autograd.record():
            loss = self.loss(batch)
        return loss if isinstance(loss, tuple) else (loss, None)

    def differentiate_and_exchange(self, loss: Tensor) -> list[Tensor]:
        """The gradient of ``loss`` by every trained master, averaged over the ranks.

        The next call overwrites the arrays. All ranks have equally many rows: the average of their means is
        the mean over the global batch.
        """
        loss.backward()
        self.framework.exchange.average(self._gradients)
        self._note(self.masters, loss)
        self.framework.observed.note(gradients=self._gradients[0])
        return self._gradients

    def _note(self, weights: dict[str, Tensor], result: Tensor) -> None:
        self.framework.observed.note(weights=next(iter(weights.values())))
        if np.dtype(result.dtype).kind == "f":  # not token ids
            self.framework.observed.note(activations=result)

    # ---- members of suite.contract.Pair ----------------------------------------------------------------
    def restore(self) -> None:
        """Restore initial weights, state, optimiser and the random stream, in place."""
        self.framework.seed()
        self.framework.synchronize()  # see gradients
        for tensor, value in zip(self.state, self._initial_state, strict=True):
            tensor[:] = value
        if self.optimiser is not None:  # otherwise no weight has changed
            self._load()
            self.optimiser.reset()

    def _load(self) -> None:
        for name, value in self.starting_weights():
            self.masters[name][:] = self.framework.tensor(value)

    def collect(self) -> list[NDArray[Any]]:
        """See the base; MXNet has no scalars, so a loss is an array of one element."""
        results = super().collect()
        return [loss.reshape(()) for loss in results] if self.training else results

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen.

        A backward pass updates running statistics, which the engine does not track: an operation on them
        waits for the backward pass only through the gradients.
        """
        saved = [tensor.copy() for tensor in self.state]
        self.framework.synchronize()
        loss, _ = self._loss_of(self.framework.feed(self.data, index))
        gradients = self.by_name(self.differentiate_and_exchange(loss))
        for tensor, value in zip(self.state, saved, strict=True):
            tensor[:] = value
        return gradients
