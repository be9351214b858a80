"""Convolutional networks as data: layers, their shapes, parameters and cost. Standard library only.

A network is a tuple of layers; ``suite/frameworks/<framework>/layers.py`` computes each kind of layer, so a
new network needs one specification for all frameworks. Sizes are explicit numbers, because frameworks define
names such as "same" differently: padding is symmetric, and output sizes round down, except in a pool with
``ceil``. Shapes are (channels, height, width) of one sample, or (features,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from suite.contract import Parameter

Pair: TypeAlias = "tuple[int, int]"
Shape: TypeAlias = "tuple[int, ...]"
Init: TypeAlias = "tuple[str, str]"  # distribution and scale, as in Parameter
ZERO: Init = ("constant", "0")


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution; weight ``<name>.weight`` [outputs, inputs, height, width], bias ``<name>.bias``."""

    name: str
    inputs: int
    outputs: int
    kernel: Pair
    stride: int
    padding: Pair
    bias: bool
    init: Init
    bias_init: Init = ZERO


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Normalisation over batch and positions, with trained ``<name>.gamma`` and ``<name>.beta``.

    ``gamma`` and ``beta`` are the initial values. Running statistics ``<name>.mean`` and ``<name>.variance``
    start at 0 and 1; each training step keeps ``decay`` of the old value. ``variance`` takes the biased
    variance of the batch in every framework.
    """

    name: str
    channels: int
    epsilon: str
    decay: str
    gamma: str = "1"
    beta: str = "0"


@dataclass(frozen=True, slots=True)
class Relu:
    """max(x, 0)."""


@dataclass(frozen=True, slots=True)
class MaxPool:
    """The largest value of each window; padding counts as minus infinity."""

    kernel: int
    stride: int
    padding: int = 0
    ceil: bool = False


@dataclass(frozen=True, slots=True)
class AveragePool:
    """The mean of each window, including the zeros of the padding."""

    kernel: int
    stride: int
    padding: int = 0


@dataclass(frozen=True, slots=True)
class GlobalAverage:
    """The mean over all positions: (channels,)."""


@dataclass(frozen=True, slots=True)
class Flatten:
    """Reshape to (channels * height * width,); the channel varies slowest."""


@dataclass(frozen=True, slots=True)
class Dropout:
    """Inverted dropout with the rate of the hyperparameter ``dropout``; training only."""

    name: str


@dataclass(frozen=True, slots=True)
class Dense:
    """A product with ``<name>.weight`` [outputs, inputs], plus ``<name>.bias``."""

    name: str
    inputs: int
    outputs: int
    init: Init
    bias_init: Init = ZERO


@dataclass(frozen=True, slots=True)
class Concat:
    """The outputs of all branches, concatenated along the channels. An empty branch is the identity."""

    branches: tuple[tuple[Layer, ...], ...]


@dataclass(frozen=True, slots=True)
class Residual:
    """``relu(body(x) + shortcut(x))``; an empty shortcut is the identity."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...]


Plain: TypeAlias = (
    "Conv | BatchNorm | Relu | MaxPool | AveragePool | GlobalAverage | Flatten | Dropout | Dense"
)
Layer: TypeAlias = "Plain | Concat | Residual"
Network: TypeAlias = "tuple[Layer, ...]"


def he_normal(outputs: int, kernel: Pair) -> Init:
    """N(0, 2 / fan_out): He et al., "Delving Deep into Rectifiers", ICCV 2015."""
    return "normal", repr(math.sqrt(2 / (outputs * kernel[0] * kernel[1])))


def inverse_root(inputs: int, gain: float = 1.0) -> Init:
    """Uniform with half-width gain / sqrt(inputs): gain 1 is PyTorch's default, sqrt(6) He et al.'s rule."""
    return "uniform", repr(gain / math.sqrt(inputs))


def walk(network: Sequence[Layer]) -> Iterator[Layer]:
    """Every layer, nested ones too, in the order of computation; a body comes before its shortcut."""
    for layer in network:
        if isinstance(layer, Concat):
            for branch in layer.branches:
                yield from walk(branch)
        elif isinstance(layer, Residual):
            yield from walk(layer.body)
            yield from walk(layer.shortcut)
        yield layer


def parameters(network: Sequence[Layer]) -> tuple[Parameter, ...]:
    """The trainable tensors in the order of computation."""
    result: list[Parameter] = []
    for layer in walk(network):
        if isinstance(layer, Conv):
            result.append(
                Parameter(f"{layer.name}.weight", (layer.outputs, layer.inputs, *layer.kernel), *layer.init)
            )
            if layer.bias:
                result.append(Parameter(f"{layer.name}.bias", (layer.outputs,), *layer.bias_init))
        elif isinstance(layer, BatchNorm):
            result.append(Parameter(f"{layer.name}.gamma", (layer.channels,), "constant", layer.gamma))
            result.append(Parameter(f"{layer.name}.beta", (layer.channels,), "constant", layer.beta))
        elif isinstance(layer, Dense):
            result.append(Parameter(f"{layer.name}.weight", (layer.outputs, layer.inputs), *layer.init))
            result.append(Parameter(f"{layer.name}.bias", (layer.outputs,), *layer.bias_init))
    return tuple(result)


def statistics(network: Sequence[Layer]) -> tuple[BatchNorm, ...]:
    """The layers that keep running statistics, in the order of computation."""
    return tuple(layer for layer in walk(network) if isinstance(layer, BatchNorm))


def decayed(network: Sequence[Layer]) -> frozenset[str]:
    """The parameters with weight decay: weights of Conv and Dense, no biases, no normalisations."""
    return frozenset(p.name for p in parameters(network) if p.name.endswith(".weight"))


def normalised(network: Sequence[Layer]) -> Iterator[tuple[Conv, BatchNorm]]:
    """Each convolution that a normalisation follows directly, and that normalisation."""
    before: Layer | None = None
    for layer in walk(network):
        if isinstance(layer, BatchNorm) and isinstance(before, Conv):
            yield before, layer
        before = layer


def folded(network: Sequence[Layer]) -> Network:
    """The network for inference: each normalisation directly behind a convolution is folded into it."""
    result: list[Layer] = []
    for layer in network:
        before = result[-1] if result else None
        if isinstance(layer, BatchNorm) and isinstance(before, Conv):
            result[-1] = replace(before, bias=True)
        elif isinstance(layer, Concat):
            result.append(Concat(tuple(folded(branch) for branch in layer.branches)))
        elif isinstance(layer, Residual):
            result.append(Residual(folded(layer.body), folded(layer.shortcut)))
        else:
            result.append(layer)
    return tuple(result)


def channels(network: Sequence[Layer], inputs: int) -> int:
    """The output channels of a network without Dense layers, for an input of ``inputs`` channels."""
    for layer in network:
        if isinstance(layer, Conv):
            inputs = layer.outputs
        elif isinstance(layer, Concat):
            inputs = sum(channels(branch, inputs) for branch in layer.branches)
        elif isinstance(layer, Residual):
            inputs = channels(layer.body, inputs)
    return inputs


def output_shape(network: Sequence[Layer], shape: Shape) -> Shape:
    """The shape of the output for an input of ``shape``; ValueError where a layer does not fit its input."""
    return _trace(network, shape, lambda layer, output: None)


def macs(network: Sequence[Layer], shape: Shape) -> int:
    """Multiply-accumulates of one sample's forward pass, of Conv and Dense layers only."""
    return sum(_each_macs(network, shape))


def training_macs(network: Sequence[Layer], shape: Shape) -> int:
    """Multiply-accumulates of one sample's training step: three forward passes less the images' gradient."""
    counts = _each_macs(network, shape)
    return 3 * sum(counts) - counts[0]


def _each_macs(network: Sequence[Layer], shape: Shape) -> list[int]:
    counts: list[int] = []

    def count(layer: Layer, output: Shape) -> None:
        if isinstance(layer, Conv):
            kernel = layer.kernel[0] * layer.kernel[1]
            counts.append(layer.inputs * kernel * output[0] * output[1] * output[2])
        elif isinstance(layer, Dense):
            counts.append(layer.inputs * layer.outputs)

    _trace(network, shape, count)
    return counts


def _trace(network: Sequence[Layer], shape: Shape, visit: Callable[[Layer, Shape], None]) -> Shape:
    """The output shape of ``network``; calls ``visit`` with each layer and its output shape."""
    for layer in network:
        if isinstance(layer, Concat):
            parts = [_trace(branch, shape, visit) for branch in layer.branches]
            if len({part[1:] for part in parts}) != 1:
                raise ValueError(f"branches: expected equal heights and widths, found {parts}")
            shape = (sum(part[0] for part in parts), *parts[0][1:])
        elif isinstance(layer, Residual):
            body, shortcut = _trace(layer.body, shape, visit), _trace(layer.shortcut, shape, visit)
            if body != shortcut:
                raise ValueError(f"residual: expected the shortcut's shape {shortcut}, found {body}")
            shape = body
        else:
            shape = _plain_shape(layer, shape)
        visit(layer, shape)
    return shape


def _plain_shape(layer: Plain, shape: Shape) -> Shape:
    if isinstance(layer, (Relu, Dropout)):
        return shape
    if isinstance(layer, (Conv, BatchNorm, Dense)):
        expected = layer.channels if isinstance(layer, BatchNorm) else layer.inputs
        if shape[0] != expected or len(shape) != (1 if isinstance(layer, Dense) else 3):
            raise ValueError(f"{layer.name}: expected {expected} inputs, found an input of shape {shape}")
    if isinstance(layer, BatchNorm):
        return shape
    if isinstance(layer, Dense):
        return (layer.outputs,)
    if len(shape) != 3:
        raise ValueError(f"{layer}: expected an image, found an input of shape {shape}")
    if isinstance(layer, GlobalAverage):
        return shape[:1]
    if isinstance(layer, Flatten):
        return (shape[0] * shape[1] * shape[2],)
    if isinstance(layer, Conv):
        sides = zip(shape[1:], layer.kernel, layer.padding, strict=True)
        return (layer.outputs, *(windows(size, k, layer.stride, p, False) for size, k, p in sides))
    if isinstance(layer, (MaxPool, AveragePool)):
        ceil = isinstance(layer, MaxPool) and layer.ceil
        return (
            shape[0],
            *(windows(size, layer.kernel, layer.stride, layer.padding, ceil) for size in shape[1:]),
        )
    raise TypeError(f"expected a layer, found {layer!r}")


def windows(size: int, kernel: int, stride: int, padding: int, ceil: bool) -> int:
    """Windows along one side; ``ceil`` adds an incomplete one if it starts inside the input."""
    left = size + 2 * padding - kernel
    if left < 0:
        raise ValueError(f"expected a side of at least {kernel - 2 * padding}, found {size}")
    count = left // stride + 1
    return count + 1 if ceil and left % stride and count * stride < size + padding else count


def blocks(side: int, kernel: int, stride: int, padding: int) -> tuple[int, int, int, int]:
    """One side of a convolution whose pixels become blocks of ``stride`` pixels, so that its stride is 1.

    The kernel in blocks; the blocks of the side; the zeros that fill them behind the side (negative: pixels
    that no window reaches) and behind the kernel.
    """
    reach = -(-kernel // stride)
    count = windows(side, kernel, stride, padding, False) - 1 + reach
    return reach, count, stride * count - side - padding, stride * reach - kernel
