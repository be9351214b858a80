"""The base of every pair in PyTorch: it owns weights, steps and updates; a workload adds model and loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from suite.contract import Data, Job
from suite.frameworks import base
from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.framework import Adam, Batch, Descent, Framework, Momentum, clip_by_global_norm
from suite.frameworks.pytorch.scaling import Optimiser

Loss: TypeAlias = Tensor | tuple[Tensor, Any]


class LossModule(nn.Module):
    """A pair's training loss as a module whose parameters are the trained masters.

    Whatever exchanges gradients while they are computed wraps a module and hooks into ``backward()``.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter], loss: Callable[[Batch], Loss]) -> None:
        super().__init__()
        for name, parameter in trained.items():
            self.register_parameter(name.replace(".", "/"), parameter)  # torch allows no dot in a name
        self._loss = loss

    def forward(self, batch: Batch) -> Loss:
        """See :meth:`BasePair.loss`."""
        return self._loss(batch)


class BasePair(base.BasePair):
    """See :class:`suite.contract.Pair`. Masters have the type of the parameters (float32, in tests float64).

    ``masters`` are all weights by canonical name, ``trained`` those of them that are updated. ``state`` are
    the tensors beside them that steps change (running statistics, a recurrent state). ``compiled`` names the
    methods that are compiled as a whole: ``loss``, ``infer``. In inference ``stored`` are the weights in the
    type of the arithmetic.
    """

    framework: Framework
    masters: dict[str, nn.Parameter]
    optimiser: Optimiser | None
    stored: dict[str, Tensor]
    compiled: Collection[str] = ("loss", "infer")

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        super().__init__(job, framework, data)
        self.state: list[Tensor] = []
        self.build()
        self.masters = {
            name: nn.Parameter(
                self.layout(framework.tensor(value)), self.training and name not in self.frozen
            )
            for name, value in self.initial_weights()
        }
        self.trained = {name: master for name, master in self.masters.items() if master.requires_grad}
        self._initial_state = [tensor.clone() for tensor in self.state]
        self._results = framework.results()
        if self.training:
            self._module = LossModule(self.trained, self._whole("loss", self.loss))
            self._clip = float(job.hyper.get("clip", "0"))
            self.optimiser = self.make_optimiser()
            changed = [*self.trained.values(), *self.optimiser.state, *self.state]
            self._run = framework.make_fast(self.update, changed)
        else:
            with torch.no_grad():
                self.stored = self.inference_weights()
            self._infer = self._whole("infer", self.infer)
            self._run = framework.make_fast(self._observed_infer, self.state)
        with torch.no_grad():
            self.observe()
        self.run_each_shape()

    def _whole(self, name: str, method: Callable[[Batch], Any]) -> Callable[[Batch], Any]:
        return self.framework.compile(method) if name in self.compiled else method

    # ---- what a workload's pair supplies -----------------------------------------------------------------
    def loss(self, batch: Batch) -> Loss:
        """The training loss, a scalar, divided as the specification says; beside it what :meth:`carry` takes.

        A pair that replaces :meth:`update` and :meth:`gradients` has none.
        """
        raise NotImplementedError(f"{type(self).__module__}: expected a method loss, found none")

    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The output of one inference batch, from ``stored``."""

    # ---- what it may override ----------------------------------------------------------------------------
    def layout(self, tensor: Tensor) -> Tensor:
        """``tensor``, a weight in canonical layout, as it shall lie in memory."""
        return tensor

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of inference, in the type of the arithmetic."""
        return self.cast()

    def make_optimiser(self) -> Optimiser:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        hyper, trained = self.job.hyper, list(self.trained.values())
        if "beta1" in hyper:
            return Adam(trained, hyper)
        if "momentum" in hyper:
            decayed = self.decayed()
            return Momentum(trained, hyper, [at for at, name in enumerate(self.trained) if name in decayed])
        return Descent(trained)

    # ---- what it may use ---------------------------------------------------------------------------------
    def cast(self) -> dict[str, Tensor]:
        """The masters in the type of the arithmetic."""
        dtype = self.framework.compute_dtype
        return {name: master.to(dtype) for name, master in self.masters.items()}

    # ---- a step ------------------------------------------------------------------------------------------
    def update(self, batch: Batch) -> Tensor:
        """One update by the gradient of ``batch``; the loss, or [loss, norm] where ``keeps_norm``."""
        loss, carried = self._loss_of(batch)
        gradients, kept = self.differentiate_and_exchange(loss), loss.detach()
        if self._clip or self.keeps_norm:
            clipped, norm = clip_by_global_norm(gradients, self._clip)
            gradients = clipped if self._clip else gradients
            kept = torch.stack((kept, norm)) if self.keeps_norm else kept
        if self.optimiser is not None:
            self.framework.scaling.update(self.optimiser, gradients)
        if carried is not None:
            self.carry(carried)
        return kept

    def _loss_of(self, batch: Batch) -> tuple[Tensor, Any]:
        found = self._module(batch)
        return found if isinstance(found, tuple) else (found, None)

    def differentiate_and_exchange(self, loss: Tensor) -> list[Tensor]:
        """The gradient of ``loss`` by every trained master, in their order.

        By ``backward()``, with no gradient kept between steps: what it computes is then handed over, not
        added up, and belongs to a captured graph.
        """
        self.framework.scaling.scaled(loss).backward()
        found = []
        for name, master in self.trained.items():
            if master.grad is None:
                raise RuntimeError(f"{self.spec.NAME}: expected a gradient for {name}, found none")
            found.append(master.grad)
            master.grad = None
        self.framework.observed.note(weights=self.trained[name], gradients=found[0])
        return self.framework.scaling.unscaled(found)

    @torch.no_grad()
    def _observed_infer(self, batch: Batch) -> Tensor:
        self.framework.observed.note(weights=next(iter(self.stored.values())))
        return self._infer(batch)

    # ---- the rest of the contract ------------------------------------------------------------------------
    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step, on a GPU by the captured graph of ``slot`` or of the batch's shapes."""
        return self._run(batch, slot)

    @torch.no_grad()
    def restore(self) -> None:
        """Initial weights, state, optimiser and loss scaling, in place; random streams from their start."""
        torch.manual_seed(self.job.seed)
        for tensor, value in zip(self.state, self._initial_state, strict=True):
            tensor.copy_(value)
        if self.optimiser is None:  # inference changes no weight
            return
        for name, value in self.initial_weights():
            self.masters[name].copy_(self.framework.tensor(value))
        self.optimiser.reset()
        self.framework.scaling.reset()

    def parameters(self) -> Arrays:
        """Masters by canonical name, then what is fixed."""
        found = {name: self.framework.array(master) for name, master in self.masters.items()}
        return found | self.fixed_parameters()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen."""
        loss, _ = self._loss_of(self.framework.feed(self.data, index))
        found = dict(zip(self.trained, self.differentiate_and_exchange(loss), strict=True))
        return {
            name: self.framework.array(found[name] if name in found else torch.zeros_like(master))
            for name, master in self.masters.items()
        }
