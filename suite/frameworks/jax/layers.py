"""Networks of ``suite/common/layers.py`` in JAX: images NHWC, kernels [height, width, in, out].

The matrix of a Dense layer is [in, out].
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suite.common import folding, layers

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10

Tensor = Any


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
    if weight.shape[:2] == (1, 1) and not any(layer.padding) and jax.default_backend() == "cpu":
        # A product of matrices, whose gradient XLA computes several times faster on a CPU.
        output = x[:, ::stride, ::stride] @ weight[0, 0]
    else:
        output = lax.conv_general_dilated(
            x,
            weight,
            window_strides=(stride, stride),
            padding=[(edge, edge) for edge in layer.padding],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    return output + run.weights[f"{layer.name}.bias"].astype(x.dtype) if layer.bias else output


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
    wide = x.astype(gamma.dtype)
    # Both sums in one pass. Distances from one pixel keep the digits of a variance whose mean is far from 0.
    pixel = lax.stop_gradient(wide[0, 0, 0])
    apart = wide - pixel
    mean, squares = (jnp.mean(values, axis=(0, 1, 2)) for values in (apart, jnp.square(apart)))
    variance = jnp.maximum(squares - jnp.square(mean), 0)
    run.seen[f"{name}.mean"], run.seen[f"{name}.variance"] = mean + pixel, variance
    return ((apart - mean) * (gamma * lax.rsqrt(variance + epsilon)) + beta).astype(x.dtype)


def _edges(layer: Any, x: Tensor) -> list[tuple[int, int]]:
    """The padding of a pooling for each axis of ``x``; with ceil the last window may end outside."""
    sides = tuple(x.shape[1:3])
    windows = layers.output_shape((layer,), (x.shape[3], *sides))[1:]
    edges = [(0, 0)]
    for side, count in zip(sides, windows, strict=True):
        reached = (count - 1) * layer.stride + layer.kernel
        edges.append((layer.padding, max(layer.padding, reached - side - layer.padding)))
    return [*edges, (0, 0)]


def _pool(layer: Any, x: Tensor, start: Any, combine: Any) -> Tensor:
    window, strides = (1, layer.kernel, layer.kernel, 1), (1, layer.stride, layer.stride, 1)
    return lax.reduce_window(x, start, combine, window, strides, _edges(layer, x))


def _average_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))  # half precision would lose digits of the sum
    total = _pool(layer, wide, np.zeros((), wide.dtype), lax.add)
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
    layers.MaxPool: lambda layer, x, run: _pool(layer, x, np.asarray(-np.inf, x.dtype), lax.max),
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
