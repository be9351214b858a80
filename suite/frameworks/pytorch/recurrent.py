"""Parts of recurrent models in PyTorch: an LSTM layer with cuDNN's weights, its dropout, wider weights.

Sequences are time-major, [T, B, width].
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Each step casts the weights anew, so cuDNN always copies them; its advice does not apply.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")

State = tuple[Tensor, Tensor]  # hidden and cell, each [1, B, H]


@dataclass
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by name, [B, T, width]."""

    rate: float = 0.0
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` [T, B, width] after the dropout ``name``."""
        if name in self.masks:
            return inputs * self.masks[name].transpose(0, 1).to(inputs.dtype) / (1.0 - self.rate)
        return functional.dropout(inputs, self.rate) if self.rate > 0.0 else inputs

    def factors(self, names: Sequence[str], like: Tensor) -> Tensor | None:
        """What the dropouts ``names`` multiply values like ``like`` [T, B, width] by, [names, T, B, width].

        In float32 or wider: rounded to half precision, 1 / (1 - rate) would be off for all values alike. None
        where they change nothing.
        """
        kind = torch.promote_types(like.dtype, torch.float32)
        if self.masks:
            return torch.stack([self(name, torch.ones_like(like, dtype=kind)) for name in names])
        if self.rate == 0.0:
            return None
        return functional.dropout(like.new_ones(len(names), *like.shape, dtype=kind), self.rate)


NO_DROPOUT = Dropout()


def lstm(
    inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, state: State | None = None
) -> tuple[Tensor, State]:
    """Outputs [T, B, H] and the last state of one LSTM; without ``state`` it starts from zero.

    Weights are [4H, in], [4H, H] and [4H], gates i, f, g, o; the second bias is a frozen zero.
    """
    if state is None:
        zero = inputs.new_zeros(1, inputs.shape[1], bias.shape[0] // 4)
        state = zero, zero
    tensors = [kernel, recurrent, bias, torch.zeros_like(bias)]
    outputs, hidden, cell = torch._VF.lstm(  # type: ignore[attr-defined]
        inputs, state, tensors, True, 1, 0.0, torch.is_grad_enabled(), False, False
    )
    return outputs, (hidden, cell)


class _Widen(torch.autograd.Function):
    """A weight [V, H] in another type, with zeros behind H, so that its rows are aligned for tensor cores.

    This is one copy each way; a cast and a pad are two.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, width: int, kind: torch.dtype) -> Tensor:
        ctx.width, ctx.kind = weight.shape[1], weight.dtype
        wide = weight.new_empty(weight.shape[0], width, dtype=kind)
        wide[:, : ctx.width] = weight
        wide[:, ctx.width :] = 0
        return wide

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:
        return slopes[:, : ctx.width].to(ctx.kind), None, None


def widen(weight: Tensor, width: int, kind: torch.dtype) -> Tensor:
    """``weight`` [V, H] as [V, ``width``], zeros behind H, in ``kind``."""
    widened: Tensor = _Widen.apply(weight, width, kind)  # type: ignore[no-untyped-call]
    return widened
