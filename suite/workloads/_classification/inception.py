"""Parts of the Inception networks: a convolution with normalisation and ReLU, branches, and their channels.

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
    """Makes a network's convolutions, each with normalisation and ReLU behind it.

    ``init`` is a function of inputs and kernel. Published channels are scaled by ``width`` / ``published``,
    those of the first convolution here and in the publication.
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
        """From ``inputs`` to ``outputs`` published channels; three colours stay three."""
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        edges = (padding, padding) if isinstance(padding, int) else padding
        into, out = inputs if inputs == 3 else self.channels(inputs), self.channels(outputs)
        found = Conv(f"{name}.conv", into, out, sides, stride, edges, self.bias, self.init(into, sides))
        return found, BatchNorm(f"{name}.norm", out, self.epsilon, self.decay, beta=self.beta), Relu()

    def same(self, name: str, inputs: int, outputs: int, kernel: int | Pair = 1) -> Network:
        """As :meth:`conv`, of stride 1 and padded to keep the size."""
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        return self.conv(name, inputs, outputs, (height, width), 1, (height // 2, width // 2))

    def sames(self, name: str, inputs: int, *units: tuple[int, int | Pair]) -> Network:
        """Several of :meth:`same`, each given by its outputs and kernel."""
        found: list[Layer] = []
        for index, (outputs, kernel) in enumerate(units):
            found += self.same(f"{name}.{index}", inputs, outputs, kernel)
            inputs = outputs
        return tuple(found)


def beside(*branches: Sequence[Layer]) -> Network:
    """Branches whose outputs are concatenated."""
    return (Concat(tuple(tuple(branch) for branch in branches)),)


def classifier(inputs: int, classes: int, init: Init) -> Network:
    """The mean over positions, dropout, and one product."""
    return GlobalAverage(), Dropout("dropout"), Dense("classifier", inputs, classes, init)
