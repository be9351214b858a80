"""Base class of every pair in PyTorch: weights, steps and updates; a workload adds model and loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from suite.contract import Data, Job, LostRank
from suite.frameworks import base
from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.exchange import lost_rank
from suite.frameworks.pytorch.framework import Batch, Framework
from suite.frameworks.pytorch.optimisers import (
    Adam,
    Descent,
    Momentum,
    clip_by_global_norm,
    clip_in_update,
    global_norm,
)
from suite.frameworks.pytorch.scaling import Optimiser

Loss: TypeAlias = Tensor | tuple[Tensor, Any]


class LossModule(nn.Module):
    """A pair's training loss as a module whose parameters are the trained masters.

    DistributedDataParallel wraps a module and exchanges gradients during ``backward()``.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter], loss: Callable[[Batch], Loss]) -> None:
        super().__init__()
        for name, parameter in trained.items():
            self.register_parameter(name.replace(".", "/"), parameter)  # torch allows no dot in a name
        self._loss = loss

    def forward(self, batch: Batch) -> Loss:
        """See :meth:`BasePair.loss`."""
        return self._loss(batch)


class CastWhenUsed(Mapping[str, Tensor]):
    """The masters in the compute type, each cast when it is first used.

    ``backward()`` runs the newest operations first. The gradient of a weight that is cast just before its
    use is therefore complete as soon as it is computed, and its exchange runs beside the rest of
    ``backward()``; if all weights are cast before the first layer, all gradients are complete at the end.
    """

    def __init__(self, masters: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self._masters, self._dtype = masters, dtype
        self._cast: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        """The weight; KeyError for a name that is none."""
        if name not in self._cast:
            self._cast[name] = self._masters[name].to(self._dtype)
        return self._cast[name]

    def __iter__(self) -> Iterator[str]:
        """The names of all masters."""
        return iter(self._masters)

    def __len__(self) -> int:
        """The number of masters."""
        return len(self._masters)


class BasePair(base.BasePair):
    """See :class:`suite.contract.Pair`. Masters have the type of the parameters (float32, in tests float64).

    ``masters`` holds all weights by canonical name, ``trained`` those that are updated, ``state`` the other
    tensors that steps change (running statistics, a recurrent state). ``compiled`` names the methods that are
    compiled as a whole: ``loss``, ``infer``. In inference ``stored`` holds the weights in the compute type.
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
            for name, value in self.starting_weights()
        }
        self.trained = {name: master for name, master in self.masters.items() if master.requires_grad}
        self._initial_state = [tensor.clone() for tensor in self.state]
        self._results = framework.results()
        if self.training:
            module = LossModule(self.trained, self._whole("loss", self.loss))
            self._module = framework.exchange.averaged(module, framework.capture_stream)
            self._clip = float(job.hyper.get("clip", "0")) if job.key.updates else 0.0
            self.optimiser = self.make_optimiser() if job.key.updates else None
            changed = self.state
            if self.optimiser is not None:
                if not self.framework.scaling.state:
                    limit = (self._clip or inf) if self._clip or self.keeps_norm else None
                    framework.exchange.shard_update(self.optimiser, limit)
                changed = [*self.trained.values(), *self.optimiser.state, *self.state]
            self._run = framework.make_fast(self.update, changed)
        else:
            with torch.no_grad():
                self.stored = self.inference_weights()
            self._infer = self._whole("infer", self.infer)
            self._run = framework.make_fast(self._observed_infer, self.state)
        with torch.no_grad():
            self.observe()

    def _whole(self, name: str, method: Callable[[Batch], Any]) -> Callable[[Batch], Any]:
        return self.framework.compile(method) if name in self.compiled else method

    def skip_search(self) -> None:
        """Train in half precision with cuDNN's own choice of algorithms, without its search for the fastest.

        For networks where the search, which each start repeats, was measured to find nothing faster.
        """
        if self.training and self.framework.compute_dtype in (torch.bfloat16, torch.float16):
            torch.backends.cudnn.benchmark = False

    # ---- members that a workload's pair supplies or overrides ------------------------------------------
    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The output of one inference batch, from ``stored``."""

    def layout(self, tensor: Tensor) -> Tensor:
        """``tensor``, a weight in canonical layout, in the memory layout of the computation."""
        return tensor

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of inference, in the compute type."""
        return dict(self.cast())

    def make_optimiser(self) -> Optimiser:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        return self.choose_optimiser(Adam, Momentum, Descent)

    def cast(self) -> Mapping[str, Tensor]:
        """The masters in the compute type."""
        return CastWhenUsed(self.masters, self.framework.compute_dtype)

    # ---- a step ----------------------------------------------------------------------------------------
    def update(self, batch: Batch) -> Tensor:
        """One update by the gradient of ``batch``; the loss, or [loss, norm] where ``keeps_norm``.

        Without an optimiser it computes the gradient and updates nothing (scenario ``forward_backward``).
        With several ranks the gradient is that of the global batch, and the loss is the rank's share of it.
        """
        loss, carried = self._loss_of(batch)
        result = loss.detach()
        if self.job.world_size > 1:
            result = result / self.job.world_size
        if self.framework.exchange.updates_weights:
            norm = self.framework.exchange.backward_and_update(loss)
            result = torch.stack((result, norm)) if norm is not None and self.keeps_norm else result
        else:
            gradients = self.differentiate_and_exchange(loss)
            norm = None
            if self._clip:
                norm = clip_in_update(self.optimiser, gradients, self._clip)
                if norm is None:
                    gradients, norm = clip_by_global_norm(gradients, self._clip)
            elif self.keeps_norm:
                norm = global_norm(gradients)
            if norm is not None and self.keeps_norm:
                result = torch.stack((result, norm))
            if self.optimiser is not None:
                self.framework.scaling.update(self.optimiser, gradients)
        if carried is not None:
            self.carry(carried)
        return result

    def _loss_of(self, batch: Batch) -> tuple[Tensor, Any]:
        loss = self._module(batch)
        return loss if isinstance(loss, tuple) else (loss, None)

    def differentiate_and_exchange(self, loss: Tensor) -> list[Tensor]:
        """The gradient of ``loss`` by every trained master, in their order, averaged over the ranks.

        All ranks have equally many rows: the average of their means is the mean over the global batch.
        ``backward()`` finds no gradients of an earlier step, so it stores its tensors instead of adding to
        others. They are valid until the next step: a captured graph or the exchange owns them.
        """
        self.framework.exchange.backward(self.framework.scaling.scaled(loss))
        gradients = []
        for name, master in self.trained.items():
            if master.grad is None:
                raise RuntimeError(f"{self.spec.NAME}: expected a gradient for {name}, found none")
            gradients.append(master.grad)
            master.grad = None
        self.framework.observed.note(weights=self.trained[name], gradients=gradients[0])
        return self.framework.scaling.unscaled(gradients)

    @torch.no_grad()
    def _observed_infer(self, batch: Batch) -> Tensor:
        self.framework.observed.note(weights=next(iter(self.stored.values())))
        return self._infer(batch)

    # ---- members of suite.contract.Pair ----------------------------------------------------------------
    def step(self, index: int) -> None:
        """One update (train) or one batch of outputs (infer); LostRank if an exchange fails."""
        try:
            super().step(index)
        except RuntimeError as error:
            if lost_rank(error):
                raise LostRank(str(error)) from error
            raise

    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step, on a GPU by the captured graph of ``slot`` or of the batch's shapes."""
        return self._run(batch, slot)

    @torch.no_grad()
    def restore(self) -> None:
        """Restore initial weights, state, optimiser, loss scaling and random streams, in place."""
        torch.manual_seed(self.framework.seed)
        self.framework.exchange.expect_steps()
        for tensor, value in zip(self.state, self._initial_state, strict=True):
            tensor.copy_(value)
        if self.optimiser is None:  # no weight has changed
            return
        for name, value in self.starting_weights():
            self.masters[name].copy_(self.framework.tensor(value))
        self.optimiser.reset()
        self.framework.scaling.reset()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen."""
        loss, _ = self._loss_of(self.framework.feed(self.data, index))
        return self.by_name(self.differentiate_and_exchange(loss))
