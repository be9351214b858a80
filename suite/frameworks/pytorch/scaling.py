"""Dynamic loss scaling for fp16 in PyTorch, on the device alone: it waits for nothing and can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from suite.contract import Job
from suite.frameworks.common import NoScaling

GROWTH, BACKOFF = 2.0, 0.5


class Optimiser(Protocol):
    """What updates the parameters."""

    skip: Tensor | None

    @property
    def state(self) -> Sequence[Tensor]:
        """Every tensor beside the parameters that an update changes."""

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next update; call it outside the fast step."""

    def reset(self) -> None:
        """As if no update had been."""

    def update(self, gradients: Sequence[Tensor]) -> None:
        """One update in place; none at all where ``skip``, a scalar of 0 or 1, is there and 1."""


class LossScaling(NoScaling):
    """As ``torch.amp.GradScaler``: a step whose gradients are not all finite is skipped and halves the scale.

    After ``every`` steps in a row without a skip the scale doubles. Scales are powers of two, so that scaling
    changes no bit of what neither overflows nor underflows. Source: Micikevicius et al., ICLR 2018.
    """

    def __init__(self, initial: float, every: int, device: torch.device) -> None:
        self._initial, self._every = initial, every
        self._scale = torch.full((), initial, dtype=torch.float32, device=device)
        self._good = torch.zeros((), dtype=torch.int32, device=device)
        self._skip = torch.zeros((), dtype=torch.float32, device=device)
        self._skipped = torch.zeros((), dtype=torch.float64, device=device)
        self.state = (self._scale, self._good, self._skip, self._skipped)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        return loss * self._scale

    @torch.no_grad()
    def unscaled(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients divided by the scale, in place; notes whether one of them is not finite."""
        found = list(gradients)
        self._skip.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(found, self._skip, self._scale.reciprocal())
        return found

    @torch.no_grad()
    def update(self, optimiser: Optimiser, gradients: Sequence[Tensor]) -> None:
        """One update, skipped where the last :meth:`unscaled` met what is not finite; then the next scale."""
        optimiser.skip = self._skip  # always the same tensor
        optimiser.update(gradients)
        self._skipped.add_(self._skip)
        torch._amp_update_scale_(self._scale, self._good, self._skip, GROWTH, BACKOFF, self._every)

    @torch.no_grad()
    def reset(self) -> None:
        """The initial scale, and nothing skipped."""
        for tensor in self.state:
            tensor.zero_()
        self._scale.fill_(self._initial)

    def report(self) -> dict[str, float]:
        """The scale, and the steps skipped since the last reset; waits for the device."""
        return {"scale": float(self._scale), "skipped": int(self._skipped)}


def scaling_of(job: Job, device: torch.device) -> NoScaling:
    """The loss scaling of ``job``: for training in fp16, where the workload has one (word2vec needs none)."""
    if job.key.precision != "fp16" or job.key.phase != "train" or "loss_scale" not in job.hyper:
        return NoScaling()
    return LossScaling(job.number("loss_scale"), int(job.hyper["loss_growth"]), device)


def zero_where(skip: Tensor, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Zeros where ``skip`` is 1: multiplying by 0 would leave NaN of what is not finite."""
    stop = skip.bool()
    return [gradient.masked_fill(stop, 0.0) for gradient in gradients]
