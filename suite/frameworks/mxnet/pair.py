"""The base of every pair in MXNet: it owns weights, steps and updates; a workload adds model and loss."""

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

    ``shared`` is the ``ParameterDict`` of all blocks, ``masters`` the weights in it by canonical name; those
    named in ``frozen`` are not trained. ``state`` are the arrays beside them that steps change (running
    statistics, a recurrent state). In inference ``stored`` are the weights that it reads. Blocks made by
    ``framework.make_fast`` are the fast path.
    """

    framework: Framework
    masters: dict[str, Tensor]
    stored: dict[str, Tensor]
    dense_gradients = True  # MXNet keeps an array for each gradient; False where a pair writes gradients out

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
        self._clip = float(job.hyper.get("clip", "0"))
        self._trained = [name for name in self.masters if name not in self.frozen]
        if self.training:
            self._gradients = self._make_gradients() if self.dense_gradients else []
            self.optimiser = self.make_optimiser()
        else:
            self.stored = self.inference_weights()
        self.observe()
        self.run_each_shape()

    def _make_gradients(self) -> list[Tensor]:
        for name in self._trained:
            self.shared[name].grad_req = "write"
        return [self.shared[name].grad() for name in self._trained]

    # ---- what a workload's pair supplies -------------------------------------------------------------------
    @abstractmethod
    def build(self) -> None:
        """Make constants, dropout and blocks, name ``frozen`` and ``state``; weights are still zero."""

    def loss(self, batch: Batch) -> Loss:
        """The training loss, a scalar, divided as the specification says; beside it what ``carry`` takes.

        Called while gradients are recorded. A pair that replaces ``update`` and ``gradients`` has none.
        """
        raise NotImplementedError(f"{type(self).__module__}: expected a method loss, found none")

    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The output of one inference batch."""

    # ---- what it may override ------------------------------------------------------------------------------
    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of inference, once the initial ones are there."""
        return self.masters

    def make_optimiser(self) -> Any:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        hyper, trained = self.job.hyper, [self.masters[name] for name in self._trained]
        if "beta1" in hyper:
            return Adam(trained, hyper)
        if "momentum" in hyper:
            decayed = self.decayed()
            return Momentum(trained, hyper, [at for at, name in enumerate(self._trained) if name in decayed])
        return Descent(trained)

    # ---- a step --------------------------------------------------------------------------------------------
    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step; staged batches need no more than others."""
        del slot
        if self.training:
            return self.update(batch)
        output = self.infer(batch)
        self._note(self.stored, output)
        return output

    def update(self, batch: Batch) -> Tensor:
        """One update by the gradient of ``batch``; the loss, or [loss, norm] where ``keeps_norm``."""
        loss, carried = self._loss_of(batch)
        gradients = self.differentiate_and_exchange(loss)
        norm: Tensor = None
        if self._clip:
            gradients, norm = clip_by_global_norm(gradients, self._clip)
        elif self.keeps_norm:
            norm = global_norm(gradients)
        self.optimiser.update(gradients)
        if carried is not None:
            self.carry(carried)
        if not self.keeps_norm:
            return loss
        return mx.nd.concat(loss.reshape((1,)), norm.reshape((1,)), dim=0)

    def _loss_of(self, batch: Batch) -> tuple[Tensor, Any]:
        with autograd.record():
            found = self.loss(batch)
        return found if isinstance(found, tuple) else (found, None)

    def differentiate_and_exchange(self, loss: Tensor) -> list[Tensor]:
        """The gradient of ``loss`` by every trained master, in arrays that the next call writes again."""
        loss.backward()
        self._note(self.masters, loss)
        self.framework.observed.note(gradients=self._gradients[0])
        return self._gradients

    def _note(self, weights: dict[str, Tensor], result: Tensor) -> None:
        self.framework.observed.note(weights=next(iter(weights.values())))
        if np.dtype(result.dtype).kind == "f":  # not the ids of tokens
            self.framework.observed.note(activations=result)

    # ---- the rest of the contract --------------------------------------------------------------------------
    def restore(self) -> None:
        """Initial weights, state and optimiser, in place; the random stream from its start."""
        self.framework.seed()
        self.framework.synchronize()  # see gradients
        for tensor, value in zip(self.state, self._initial_state, strict=True):
            tensor[:] = value
        if self.optimiser is not None:  # inference changes no weight
            self._load()
            self.optimiser.reset()

    def _load(self) -> None:
        for name, value in self.initial_weights():
            self.masters[name][:] = self.framework.tensor(value)

    def collect(self) -> list[NDArray[Any]]:
        """See the base; MXNet has no scalars, so that a loss comes as an array of one."""
        found = super().collect()
        return [loss.reshape(()) for loss in found] if self.training else found

    def parameters(self) -> Arrays:
        """Masters by canonical name, then what is fixed."""
        found = {name: self.framework.array(master) for name, master in self.masters.items()}
        return found | self.fixed_parameters()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen.

        A backward pass moves running statistics without the engine's knowing: what reads or writes them waits
        for it only by way of the gradients.
        """
        kept = [tensor.copy() for tensor in self.state]
        self.framework.synchronize()
        loss, _ = self._loss_of(self.framework.feed(self.data, index))
        found = dict(zip(self._trained, self.differentiate_and_exchange(loss), strict=True))
        gradients = {
            name: self.framework.array(found[name] if name in found else mx.nd.zeros_like(master))
            for name, master in self.masters.items()
        }
        for tensor, value in zip(self.state, kept, strict=True):
            tensor[:] = value
        return gradients
