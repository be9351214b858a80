"""Parts of the Inception networks: convolution with normalisation and ReLU, and branches.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from suite.common.layers import (
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAverage,
    Init,
    Layer,
    Network,
    Pair,
    Relu,
)


@dataclass(frozen=True)
class Units:
    """Makes a network's convolutions, each followed by normalisation and ReLU.

    ``width`` and ``published`` are the channels of the first convolution, here and in the publication; all
    published channels are scaled by their ratio. ``init`` is a function of inputs and kernel.
    """

    width: int
    published: int
    init: Callable[[int, Pair], Init]
    epsilon: str
    decay: str
    beta: str = "0"
    bias: bool = False

    def channels(self, published: int) -> int:
        """``published`` channels at this width."""
        return max(1, published * self.width // self.published)

    def conv(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kernel: int | Pair = 1,
        stride: int = 1,
        padding: int | Pair = 0,
    ) -> Network:
        """A convolution from ``inputs`` to ``outputs`` published channels; 3 inputs (colours) stay 3."""
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        edges = (padding, padding) if isinstance(padding, int) else padding
        into, out = inputs if inputs == 3 else self.channels(inputs), self.channels(outputs)
        conv = Conv(f"{name}.conv", into, out, sides, stride, edges, self.bias, self.init(into, sides))
        return conv, BatchNorm(f"{name}.norm", out, self.epsilon, self.decay, beta=self.beta), Relu()

    def same(self, name: str, inputs: int, outputs: int, kernel: int | Pair = 1) -> Network:
        """:meth:`conv` with stride 1, padded to keep height and width."""
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        return self.conv(name, inputs, outputs, (height, width), 1, (height // 2, width // 2))

    def sames(self, name: str, inputs: int, *units: tuple[int, int | Pair]) -> Network:
        """A chain of :meth:`same`, each unit given by its outputs and kernel."""
        chain: list[Layer] = []
        for index, (outputs, kernel) in enumerate(units):
            chain += self.same(f"{name}.{index}", inputs, outputs, kernel)
            inputs = outputs
        return tuple(chain)


def parallel(*branches: Sequence[Layer]) -> Network:
    """Parallel branches whose outputs are concatenated along the channels."""
    return (Concat(tuple(tuple(branch) for branch in branches)),)


def classifier(inputs: int, classes: int, init: Init) -> Network:
    """The mean over positions, dropout and a fully connected layer."""
    return GlobalAverage(), Dropout("dropout"), Dense("classifier", inputs, classes, init)
