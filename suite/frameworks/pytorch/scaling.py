"""Dynamic loss scaling for fp16 in PyTorch, on the device alone: it waits for nothing and can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from suite.contract import Job
from suite.frameworks import common
from suite.frameworks.common import NoScaling

GROWTH, BACKOFF = 2.0, 0.5


class Optimiser(common.Optimiser, Protocol):
    """Updates the parameters; not where ``skip``, a scalar of 0 or 1 on the device, is 1."""

    skip: Tensor | None

    @property
    def state(self) -> Sequence[Tensor]:
        """Every tensor of the optimiser that an update changes."""


class LossScaling(NoScaling):
    """As ``torch.amp.GradScaler``: a step with non-finite gradients is skipped and halves the scale.

    After ``every`` consecutive steps without a skip the scale doubles. Scales are powers of two, so scaling
    is exact for values that neither overflow nor underflow. Source: Micikevicius et al., ICLR 2018.
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
        """The gradients divided by the scale, in place; stores whether one of them is not finite."""
        unscaled = list(gradients)
        self._skip.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(unscaled, self._skip, self._scale.reciprocal())
        return unscaled

    @torch.no_grad()
    def update(self, optimiser: Optimiser, gradients: Sequence[Tensor]) -> None:
        """One update, skipped if :meth:`unscaled` found a non-finite gradient; then the next scale."""
        optimiser.skip = self._skip  # always the same tensor
        optimiser.update(gradients)
        self._skipped.add_(self._skip)
        torch._amp_update_scale_(self._scale, self._good, self._skip, GROWTH, BACKOFF, self._every)

    @torch.no_grad()
    def reset(self) -> None:
        """Restore the initial scale and a count of 0 skipped steps."""
        for tensor in self.state:
            tensor.zero_()
        self._scale.fill_(self._initial)

    def report(self) -> dict[str, float]:
        """The scale, and the steps skipped since the last reset; waits for the device."""
        return {"scale": float(self._scale), "skipped": int(self._skipped)}


def scaling_of(job: Job, device: torch.device) -> NoScaling:
    """The loss scaling of ``job``: dynamic for training in fp16, if its hyperparameters include it."""
    if job.key.precision != "fp16" or job.key.phase != "train" or "loss_scale" not in job.hyper:
        return NoScaling()
    return LossScaling(job.number("loss_scale"), int(job.hyper["loss_growth"]), device)


def zero_where(skip: Tensor, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Zeros where ``skip`` is 1; a product with 0 would be NaN for a non-finite gradient."""
    mask = skip.bool()
    return [gradient.masked_fill(mask, 0.0) for gradient in gradients]
