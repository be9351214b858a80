"""Parts of recurrent models in MXNet Gluon: an LSTM layer by the fused operator, and dropout on its input.

Sequences are time-major, [T, B, width]. ``F`` is ``mxnet.nd`` or, hybridized, ``mxnet.sym``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Tensor = Any
State = tuple[Tensor, Tensor]  # hidden and cell, each [1, B, H]


@dataclass
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by name, [B, T, width].

    Only blocks that are not hybridized (``fast`` off) read masks.
    """

    rate: float = 0.0
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, F: Any, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` [T, B, width] after the dropout ``name``."""
        if name in self.masks:
            return inputs * F.transpose(self.masks[name], (1, 0, 2)) / (1.0 - self.rate)
        return F.Dropout(inputs, p=self.rate) if self.rate > 0.0 else inputs


def lstm(
    F: Any, inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, size: int, state: State
) -> tuple[Tensor, State]:
    """Outputs [T, B, size] and the last state of one LSTM that starts from ``state``.

    Weights are [4H, in], [4H, H] and [4H], gates i, f, g, o; the second bias is a frozen zero.
    """
    flat = [F.reshape(weight, shape=(-1,)) for weight in (kernel, recurrent)]
    packed = F.concat(*flat, bias, F.zeros_like(bias), dim=0)
    outputs, hidden, cell = F.RNN(
        inputs, packed, *state, state_size=size, num_layers=1, mode="lstm", state_outputs=True
    )
    return outputs, (hidden, cell)
