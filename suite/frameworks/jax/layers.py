"""Networks of ``suite/common/layers.py`` in JAX: images NHWC, kernels [height, width, in, out].

The matrix of a Dense layer is [in, out].
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suite.common import folding, layers
from suite.frameworks.jax.pooling import max_pool

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10

Tensor = Any
ALIGNMENT = 8  # sizes of half-precision products and convolutions on tensor cores are multiples of this


@dataclass(frozen=True)
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by layer name, in the shape of the layer's input.

    ``key`` is the random key of a step (:meth:`keyed`); None switches the dropout off.
    """

    rate: float = 0.0
    key: Tensor = None
    masks: dict[str, Tensor] = field(default_factory=dict)

    def keyed(self, key: Tensor) -> Self:
        """The same dropout with the random key of a step."""
        return replace(self, key=key)

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` after the dropout ``name``."""
        if name in self.masks:
            return inputs * jnp.asarray(self.masks[name], inputs.dtype) / (1.0 - self.rate)
        if self.rate <= 0.0 or self.key is None:
            return inputs
        key = jax.random.fold_in(self.key, zlib.crc32(name.encode()))
        kept = jax.random.bernoulli(key, 1.0 - self.rate, inputs.shape)
        return jnp.where(kept, inputs / (1.0 - self.rate), jnp.zeros((), inputs.dtype))


@dataclass
class Pass:
    """Inputs and observed statistics of one forward pass.

    ``running`` holds the statistics for normalisation; where it is None the layers use those of the batch and
    store them in ``seen`` (biased variance). Products are computed in the type of the images.
    """

    weights: Mapping[str, Tensor]
    running: Mapping[str, Tensor] | None = None
    dropout: Dropout | None = None
    seen: dict[str, Tensor] = field(default_factory=dict)


def pixels(images: Tensor, mean: Tensor, scale: Tensor, dtype: Any) -> Tensor:
    """uint8 [N, H, W, 3] as ``(x / 255 - mean) / scale``, in the type ``dtype``."""
    return jnp.asarray((images.astype(mean.dtype) / 255 - mean) / scale, dtype)


def compute(network: Sequence[layers.Layer], x: Tensor, run: Pass) -> Tensor:
    """The output of ``network`` for the images ``x``."""
    for layer in network:
        x = _LAYERS[type(layer)](layer, x, run)
    return x


def _conv(layer: Any, x: Tensor, run: Pass) -> Tensor:
    weight, stride = run.weights[f"{layer.name}.weight"].astype(x.dtype), layer.stride
    on_cpu = jax.default_backend() == "cpu"
    if weight.shape[:2] == (1, 1) and not any(layer.padding) and on_cpu:
        # A product of matrices, whose gradient XLA computes several times faster on a CPU.
        output = x[:, ::stride, ::stride] @ weight[0, 0]
    elif x.shape[3] % ALIGNMENT and x.dtype.itemsize == 2 and not on_cpu:
        output = convolve_blocks(x, weight, stride, layer.padding)
    else:
        output = convolve(x, weight, stride, [(edge, edge) for edge in layer.padding])
    return output + run.weights[f"{layer.name}.bias"].astype(x.dtype) if layer.bias else output


def convolve(x: Tensor, weight: Tensor, stride: int, edges: Sequence[tuple[int, int]]) -> Tensor:
    """``x`` [N, H, W, C] convolved with ``weight`` [height, width, C, out]; ``edges`` of zeros are added."""
    return lax.conv_general_dilated(
        x, weight, (stride, stride), edges, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def convolve_blocks(x: Tensor, weight: Tensor, stride: int, padding: Sequence[int]) -> Tensor:
    """The same as :func:`convolve`, of few channels, with blocks of stride x stride pixels as pixels.

    Tensor cores compute with eight channels at least: of the three of an image they would waste most of
    their work. Zeros fill the channels of a block up to a multiple of eight, and the kernel up to blocks.
    """
    channels, outputs = x.shape[3], weight.shape[3]
    sides = zip(x.shape[1:3], weight.shape[:2], padding, strict=True)
    found = [layers.blocks(side, kernel, stride, edge) for side, kernel, edge in sides]
    reach, blocks, behind, missing = zip(*found, strict=True)
    edges = [(edge, zeros, 0) for edge, zeros in zip(padding, behind, strict=True)]
    x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
    x = x.reshape(x.shape[0], blocks[0], stride, blocks[1], stride, channels)
    x = x.transpose((0, 1, 3, 2, 4, 5)).reshape(x.shape[0], *blocks, stride * stride * channels)
    weight = jnp.pad(weight, [(0, missing[0]), (0, missing[1]), (0, 0), (0, 0)])
    weight = weight.reshape(reach[0], stride, reach[1], stride, channels, outputs)
    weight = weight.transpose((0, 2, 1, 3, 4, 5)).reshape(*reach, -1, outputs)
    more = -x.shape[3] % ALIGNMENT
    return convolve(
        jnp.pad(x, [(0, 0)] * 3 + [(0, more)]),
        jnp.pad(weight, [(0, 0)] * 2 + [(0, more), (0, 0)]),
        1,
        [(0, 0), (0, 0)],
    )


def _dense(layer: Any, x: Tensor, run: Pass) -> Tensor:
    weight, bias = run.weights[f"{layer.name}.weight"], run.weights[f"{layer.name}.bias"]
    return x @ weight.astype(x.dtype) + bias.astype(x.dtype)


def _norm(layer: Any, x: Tensor, run: Pass) -> Tensor:
    name, epsilon = layer.name, float(layer.epsilon)
    gamma, beta = run.weights[f"{name}.gamma"], run.weights[f"{name}.beta"]
    if run.running is not None:
        mean, variance = run.running[f"{name}.mean"], run.running[f"{name}.variance"]
        factor = gamma * lax.rsqrt(variance + epsilon)
        return x * factor.astype(x.dtype) + (beta - mean * factor).astype(x.dtype)
    normalised, mean, variance = normalise(x, gamma, beta, epsilon)
    run.seen[f"{name}.mean"], run.seen[f"{name}.variance"] = mean, variance
    return normalised


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalise(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """``x`` [N, H, W, C] normalised over all axes but the last, mean and biased variance, each [C].

    Sums have the type of ``gamma``; no gradient flows through mean and variance. The gradient is written by
    hand (Ioffe and Szegedy, "Batch Normalization", ICML 2015): it reads ``x`` and the slopes twice, where
    that of JAX takes a third more time on a GPU.
    """
    return _normalise(x, gamma, beta, epsilon)[0]


def _normalise(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> tuple[Any, Any]:
    wide = x.astype(gamma.dtype)
    # Both sums in one pass. Distances from one pixel keep the digits of a variance whose mean is far from 0.
    pixel = wide[0, 0, 0]
    apart = wide - pixel
    distance, squares = (jnp.mean(values, axis=(0, 1, 2)) for values in (apart, jnp.square(apart)))
    mean, variance = distance + pixel, jnp.maximum(squares - jnp.square(distance), 0)
    inverse = lax.rsqrt(variance + epsilon)
    output = ((wide - mean) * (gamma * inverse) + beta).astype(x.dtype)
    return (output, mean, variance), (x, gamma, mean, inverse)


def _to_normalised(_: float, kept: Any, slopes: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    x, gamma, mean, inverse = kept
    slope, centred = slopes[0].astype(gamma.dtype), x.astype(gamma.dtype) - mean
    count = x.size // x.shape[3]
    to_beta = jnp.sum(slope, axis=(0, 1, 2))
    to_gamma = jnp.sum(slope * centred, axis=(0, 1, 2)) * inverse
    rest = slope - to_beta / count - centred * (inverse * to_gamma / count)
    return (gamma * inverse * rest).astype(x.dtype), to_gamma, to_beta


normalise.defvjp(_normalise, _to_normalised)


def _max_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    """With ceil the last window may end outside of the padding."""
    sides = tuple(x.shape[1:3])
    windows = layers.output_shape((layer,), (x.shape[3], *sides))[1:]
    edges = []
    for side, count in zip(sides, windows, strict=True):
        reached = (count - 1) * layer.stride + layer.kernel
        edges.append((layer.padding, max(layer.padding, reached - side - layer.padding)))
    return max_pool(x, layer.kernel, layer.stride, tuple(edges))


def _average_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))  # half precision would lose digits of the sum
    window, strides = (1, layer.kernel, layer.kernel, 1), (1, layer.stride, layer.stride, 1)
    edges = [(0, 0), *[(layer.padding, layer.padding)] * 2, (0, 0)]
    total = lax.reduce_window(wide, np.zeros((), wide.dtype), lax.add, window, strides, edges)
    return (total / layer.kernel**2).astype(x.dtype)


def _flatten(_layer: Any, x: Tensor, _: Pass) -> Tensor:
    return x.transpose((0, 3, 1, 2)).reshape(x.shape[0], -1)


def _concat(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return jnp.concatenate([compute(branch, x, run) for branch in layer.branches], axis=3)


def _residual(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return jax.nn.relu(compute(layer.body, x, run) + compute(layer.shortcut, x, run))


_LAYERS: dict[type, Callable[[Any, Tensor, Pass], Tensor]] = {
    layers.Conv: _conv,
    layers.Dense: _dense,
    layers.BatchNorm: _norm,
    layers.Relu: lambda layer, x, run: jax.nn.relu(x),
    layers.MaxPool: _max_pool,
    layers.AveragePool: _average_pool,
    layers.GlobalAverage: lambda layer, x, run: jnp.mean(x, axis=(1, 2)),
    layers.Flatten: _flatten,
    layers.Dropout: lambda layer, x, run: run.dropout(layer.name, x) if run.dropout else x,
    layers.Concat: _concat,
    layers.Residual: _residual,
}


class Statistics:
    """The running statistics of a network in one tensor [sum of sizes]: few arguments of the step."""

    def __init__(self, network: Sequence[layers.Layer], make: Callable[[Any], Tensor]) -> None:
        values = folding.initial_statistics(network)
        self._names = list(values)
        sizes = [value.size for value in values.values()]
        self._ends = list(np.cumsum(sizes)[:-1])
        self.initial = make(np.concatenate([*values.values(), np.zeros(0, np.float32)]))
        parts = zip(folding.decays(network), sizes, strict=True)
        self._decays = np.array([decay for decay, size in parts for _ in range(size)])

    def named(self, statistics: Tensor) -> dict[str, Tensor]:
        """The statistics by name."""
        if not self._names:
            return {}
        return dict(zip(self._names, jnp.split(statistics, self._ends), strict=True))

    def updated(self, statistics: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
        """``statistics`` updated with those of a batch."""
        if not self._names:
            return statistics
        batch = jnp.concatenate([seen[name] for name in self._names])
        decays = self._decays.astype(statistics.dtype)
        return decays * statistics + (1 - decays) * batch
