"""The optimisers of PyTorch pairs: updates on the device, with a rate that a captured graph reads there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from suite.frameworks.common import as_float32
from suite.frameworks.pytorch.scaling import zero_where

_LONG_SUM = 1 << 16  # more squares than this are added up in parts on a CPU, for the precision of float32


class Adam:
    """Adam after Kingma and Ba with epsilon added after the bias correction; dense on every parameter.

    ``w -= rate * mhat / (sqrt(vhat) + epsilon)`` with ``mhat = m / (1 - beta1**t)``, ``vhat`` likewise.
    """

    skip: Tensor | None = None  # on the device, 0 or 1: set by the loss scaling of fp16

    def __init__(self, parameters: Sequence[Tensor], hyper: Mapping[str, str]) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self._beta1, self._beta2 = float(hyper["beta1"]), float(hyper["beta2"])
        self._epsilon = float(hyper["epsilon"])
        # A captured graph reads the rate from the device.
        self._rate_on_device = (
            torch.zeros((), dtype=torch.float32, device=device) if device.type == "cuda" else None
        )
        self._value: float | None = None
        self._steps = [torch.zeros((), dtype=torch.float32, device=device) for _ in self.parameters]
        self._moments = [torch.zeros_like(one, requires_grad=False) for one in self.parameters]
        self._squares = [torch.zeros_like(one, requires_grad=False) for one in self.parameters]
        self.state = [*self._steps, *self._moments, *self._squares]

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        if rate == self._value:
            return
        self._value = rate
        if self._rate_on_device is not None:
            self._rate_on_device.fill_(rate)  # rounds to float32

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.pytorch.scaling.Optimiser`."""
        self._update(self.parameters, list(gradients), self._moments, self._squares, self._steps)

    def _update(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        moments: list[Tensor],
        squares: list[Tensor],
        steps: list[Tensor],
    ) -> None:
        # torch.optim.Adam calls the same function, but its constructor imports the compiler for a second.
        adam(
            parameters,
            gradients,
            moments,
            squares,
            [],
            steps,
            fused=True,
            found_inf=self.skip,
            lr=as_float32(self._value or 0.0) if self._rate_on_device is None else self._rate_on_device,
            beta1=self._beta1,
            beta2=self._beta2,
            eps=self._epsilon,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    def decays(self, at: int) -> bool:
        """No parameter decays."""
        del at
        return False

    def states(self, at: int) -> list[Tensor]:
        """The states of the parameter of index ``at`` that have its shape."""
        return [self._moments[at], self._squares[at]]

    @torch.no_grad()
    def apply(self, at: int, weights: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """Update ``weights`` and their ``states``, of parameter ``at`` and others, once in a step.

        The step count is that of ``at``.
        """
        self._update([weights], [gradient], [states[0]], [states[1]], [self._steps[at]])

    def reset(self) -> None:
        """Set every moment and the step count to zero."""
        torch._foreach_zero_(self.state)


class Momentum:
    """SGD with momentum by PyTorch's formula: ``v = momentum * v + g; w -= rate * v``, one kernel for all.

    ``decayed`` are the indices of the parameters to whose gradient ``weight_decay * w`` is added first.
    """

    skip: Tensor | None = None  # on the device, 0 or 1: set by the loss scaling of fp16

    def __init__(
        self, parameters: Sequence[Tensor], hyper: Mapping[str, str], decayed: Sequence[int] = ()
    ) -> None:
        self.parameters = list(parameters)
        self._momentum = float(hyper["momentum"])
        self.state = [torch.zeros_like(parameter, requires_grad=False) for parameter in self.parameters]
        self._decay = float(hyper["weight_decay"]) if decayed else 0.0
        self._decayed = sorted(decayed)
        self._others = sorted(set(range(len(self.parameters))) - set(decayed))
        first = self.parameters[0]
        # On a GPU the fused kernel takes the rate as a float32, for parameters of every type.
        dtype = torch.float32 if first.is_cuda else first.dtype
        self._rate = torch.zeros((), dtype=dtype, device=first.device)

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self._rate.fill_(as_float32(rate))

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.pytorch.scaling.Optimiser`."""
        for decays, indices in ((True, self._decayed), (False, self._others)):
            parameters = [self.parameters[at] for at in indices]
            directions = [with_layout_of(gradients[at], self.parameters[at]) for at in indices]
            self._update(decays, parameters, directions, [self.state[at] for at in indices])

    def decays(self, at: int) -> bool:
        """Whether the parameter of index ``at`` decays."""
        return at in self._decayed

    def states(self, at: int) -> list[Tensor]:
        """The states of the parameter of index ``at`` that have its shape."""
        return [self.state[at]]

    @torch.no_grad()
    def apply(self, at: int, weights: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """Update ``weights`` and their ``states``, of parameter ``at`` and others that decay as it does."""
        self._update(self.decays(at), [weights], [gradient], [states[0]])

    def _update(
        self, decays: bool, weights: list[Tensor], gradients: list[Tensor], velocities: list[Tensor]
    ) -> None:
        sgd(
            weights,
            gradients,
            velocities,
            fused=True,
            found_inf=self.skip,
            lr=self._rate,
            momentum=self._momentum,
            weight_decay=self._decay if decays else 0.0,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def reset(self) -> None:
        """Set every velocity to zero."""
        torch._foreach_zero_(self.state)


def with_layout_of(gradient: Tensor, parameter: Tensor) -> Tensor:
    """``gradient`` in ``parameter``'s memory layout: fused optimisers read both in the order of memory."""
    if gradient.stride() == parameter.stride():
        return gradient
    strides = zip(gradient.shape, gradient.stride(), parameter.stride(), strict=True)
    if all(size == 1 or one == other for size, one, other in strides):  # strides along size 1 are unused
        return gradient.as_strided(parameter.shape, parameter.stride())
    return torch.empty_like(parameter).copy_(gradient)


class Descent:
    """SGD without momentum: ``w -= rate * g``; its only state is ``rate``, on the device."""

    skip: Tensor | None = None  # on the device, 0 or 1: set by the loss scaling of fp16
    state: Sequence[Tensor] = ()
    factor: Tensor | None = None  # on the device: multiplies the gradients of the next update alone

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        first = self.parameters[0]
        # Whether clipping sets ``factor``: see :func:`clip_in_update`. A processor clips before the update,
        # as the other frameworks do.
        self.clips = first.is_cuda
        self.rate = torch.zeros((), dtype=first.dtype, device=first.device)

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self.rate.fill_(rate)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.pytorch.scaling.Optimiser`."""
        rate, self.factor = self.rate if self.factor is None else self.rate * self.factor, None
        directions = list(gradients)
        if self.skip is not None:  # the factor may not be finite either
            rate, *directions = zero_where(self.skip, [rate, *directions])
        descend(self.parameters, directions, rate)

    def reset(self) -> None:
        """No effect: there is no state."""


def descend(parameters: list[Tensor], directions: list[Tensor], rate: Tensor) -> None:
    """``parameters -= rate * directions``, in place."""
    if rate.device.type == "cpu":  # a number avoids a temporary as large as the model
        torch._foreach_sub_(parameters, directions, alpha=rate.item())
    elif rate.dtype == torch.float32:  # a captured graph reads the tensor at each replay
        directions = [with_layout_of(*pair) for pair in zip(directions, parameters, strict=True)]
        none: list[Tensor | None] = [None] * len(parameters)
        sgd(
            parameters,
            directions,
            none,
            fused=True,
            lr=rate,
            momentum=0.0,
            weight_decay=0.0,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
    else:  # the fused kernel takes a rate in float32 only
        torch._foreach_sub_(parameters, torch._foreach_mul(directions, rate))


def norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """The norm of each; on a CPU by rows if long: a float32 sum of millions of squares has only 4 digits."""

    def short(gradient: Tensor) -> Tensor:
        if gradient.is_cuda or gradient.ndim == 1 or gradient.numel() <= _LONG_SUM:
            return gradient
        return torch.linalg.vector_norm(gradient, dim=tuple(range(1, gradient.ndim)))

    return list(torch._foreach_norm([short(gradient) for gradient in gradients]))


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], Tensor]:
    """The gradients times ``limit / max(norm, limit)``, and the norm over all of them before clipping.

    Equal to ``tf.clip_by_global_norm``; ``torch.nn.utils.clip_grad_norm_`` adds 1e-6 to the norm.
    """
    norm = global_norm(gradients)
    return list(torch._foreach_mul(list(gradients), clipping_scale(norm, limit))), norm


def clip_in_update(optimiser: object, gradients: Sequence[Tensor], limit: float) -> Tensor | None:
    """As :func:`clip_by_global_norm`, by ``optimiser``'s next update; the norm, None where it cannot.

    The rate is multiplied instead of the gradients, which saves a GPU from reading and writing them once.
    """
    if not (isinstance(optimiser, Descent) and optimiser.clips):
        return None
    norm = global_norm(gradients)
    optimiser.factor = clipping_scale(norm, limit)
    return norm


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm over all ``gradients``."""
    return torch.linalg.vector_norm(torch.stack(norms(gradients)))


def clipping_scale(norm: Tensor, limit: float) -> Tensor:
    """The factor that clips gradients of this global ``norm`` to ``limit``, a finite number."""
    return limit / norm.clamp(min=limit)
