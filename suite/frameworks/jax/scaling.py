"""Dynamic loss scaling for fp16 in JAX, as pure functions inside the compiled step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from suite.contract import Job
from suite.frameworks.common import NoScaling

Tensor = Any
GROWTH, BACKOFF = 2.0, 0.5


class Scaling(NoScaling):
    """Loss scaling by 1. ``values`` is the state on the device, which the pair replaces after each step."""

    values: dict[str, Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Restore the initial state."""
        self.values = {}

    def multiplied(self, loss: Tensor, values: dict[str, Tensor]) -> Tensor:
        """The loss to differentiate."""
        del values
        return loss

    def divided(self, gradients: Sequence[Tensor], values: dict[str, Tensor]) -> list[Tensor]:
        """The gradients of the unscaled loss."""
        del values
        return list(gradients)

    def selected(
        self, gradients: Sequence[Tensor], new: Any, old: Any, values: dict[str, Tensor]
    ) -> tuple[Any, dict[str, Tensor]]:
        """``new``, parameters and optimiser state, or ``old`` if the step is skipped; the next state."""
        del gradients, old
        return new, values


class LossScaling(Scaling):
    """As in PyTorch: a step with non-finite gradients is skipped and halves the scale.

    After ``every`` consecutive steps without a skip the scale doubles.
    """

    def __init__(self, initial: float, every: int) -> None:
        self._initial, self._every = initial, every
        super().__init__()

    def reset(self) -> None:
        """Restore the initial scale and a count of 0 skipped steps."""
        self.values = {
            "scale": jnp.asarray(np.float32(self._initial)),
            "good": jnp.asarray(np.int32(0)),
            "skipped": jnp.asarray(np.int32(0)),
        }

    def multiplied(self, loss: Tensor, values: dict[str, Tensor]) -> Tensor:
        """The loss times the scale."""
        return loss * values["scale"].astype(loss.dtype)

    def divided(self, gradients: Sequence[Tensor], values: dict[str, Tensor]) -> list[Tensor]:
        """The gradients divided by the scale."""
        return [gradient / values["scale"].astype(gradient.dtype) for gradient in gradients]

    def selected(
        self, gradients: Sequence[Tensor], new: Any, old: Any, values: dict[str, Tensor]
    ) -> tuple[Any, dict[str, Tensor]]:
        """See :class:`Scaling`: ``old`` where one of ``gradients`` is not finite."""
        finite = jnp.stack([jnp.all(jnp.isfinite(gradient)) for gradient in gradients]).all()
        good = jnp.where(finite, values["good"] + 1, 0)
        larger = values["scale"] * GROWTH
        grown = jnp.where((good >= self._every) & jnp.isfinite(larger), larger, values["scale"])
        following = {
            "scale": jnp.where(finite, grown, values["scale"] * BACKOFF),
            "good": jnp.where(good >= self._every, 0, good),
            "skipped": values["skipped"] + jnp.where(finite, 0, 1),
        }
        return jax.tree.map(lambda one, other: jnp.where(finite, one, other), new, old), following

    def report(self) -> dict[str, float]:
        """The scale, and the steps skipped since the last reset; waits for the device."""
        return {"scale": float(self.values["scale"]), "skipped": int(self.values["skipped"])}


def scaling_of(job: Job) -> Scaling:
    """The loss scaling of ``job``: dynamic for training in fp16, if its hyperparameters include it."""
    if job.key.precision != "fp16" or job.key.phase != "train" or "loss_scale" not in job.hyper:
        return Scaling()
    return LossScaling(job.number("loss_scale"), int(job.hyper["loss_growth"]))
