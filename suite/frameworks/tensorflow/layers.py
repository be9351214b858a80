"""Networks of ``suite/common/layers.py`` in TensorFlow: images NHWC, kernels [height, width, in, out].

The matrix of a Dense layer is [in, out]: on a CPU, products of few rows with a transposed matrix take longer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from suite.common import folding, layers

Tensor = Any


@dataclass
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by layer name, in the shape of the layer's input.

    ``seed`` is [2] int64 and changes with each step.
    """

    rate: float = 0.0
    seed: Tensor = None
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` after the dropout ``name``."""
        if name in self.masks:
            return inputs * tf.cast(self.masks[name], inputs.dtype) / (1.0 - self.rate)
        if self.rate <= 0.0:
            return inputs
        offset = tf.constant((0, zlib.crc32(name.encode())), tf.int64)
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed=self.seed * 1009 + offset)


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
    return tf.cast((tf.cast(images, mean.dtype) / 255 - mean) / scale, dtype)


def compute(network: Sequence[layers.Layer], x: Tensor, run: Pass) -> Tensor:
    """The output of ``network`` for the images ``x``."""
    for layer in network:
        x = _LAYERS[type(layer)](layer, x, run)
    return x


def _padded(layer: Any, x: Tensor) -> tuple[Tensor, Any]:
    """The input of a convolution and its padding, in TensorFlow's format.

    With a stride, SAME would pad only the right and the bottom. On a CPU, gradients with explicit numbers use
    Eigen, which is slower than oneDNN: there the input is padded before.
    """
    (top, left) = layer.padding
    if not top and not left:
        return x, "VALID"
    if layer.stride == 1 and tuple(layer.kernel) == (2 * top + 1, 2 * left + 1):
        return x, "SAME"
    edges = [[0, 0], [top, top], [left, left], [0, 0]]
    return (x, edges) if tf.config.get_visible_devices("GPU") else (tf.pad(x, edges), "VALID")


def _conv(layer: Any, x: Tensor, run: Pass) -> Tensor:
    x, padding = _padded(layer, x)
    weight = tf.cast(run.weights[f"{layer.name}.weight"], x.dtype)
    output = tf.nn.conv2d(x, weight, strides=layer.stride, padding=padding)
    if not layer.bias:
        return output
    return tf.nn.bias_add(output, tf.cast(run.weights[f"{layer.name}.bias"], x.dtype))


def _dense(layer: Any, x: Tensor, run: Pass) -> Tensor:
    weight, bias = run.weights[f"{layer.name}.weight"], run.weights[f"{layer.name}.bias"]
    return tf.nn.bias_add(tf.matmul(x, tf.cast(weight, x.dtype)), tf.cast(bias, x.dtype))


def _norm(layer: Any, x: Tensor, run: Pass) -> Tensor:
    name, epsilon = layer.name, float(layer.epsilon)
    gamma, beta = run.weights[f"{name}.gamma"], run.weights[f"{name}.beta"]
    if run.running is not None:
        mean, variance = run.running[f"{name}.mean"], run.running[f"{name}.variance"]
        factor = gamma * tf.math.rsqrt(variance + epsilon)
        return x * tf.cast(factor, x.dtype) + tf.cast(beta - mean * factor, x.dtype)
    if x.dtype == tf.float64:  # the fused op has no float64 kernel
        mean, variance = tf.nn.moments(x, axes=(0, 1, 2))
        output = tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)
    else:
        # The raw op: tf.nn.fused_batch_norm raises an epsilon of 1e-5 to 1.001e-5.
        output, mean, unbiased, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=gamma, offset=beta, mean=[], variance=[], epsilon=epsilon, is_training=True
        )
        count = x.shape[0] * x.shape[1] * x.shape[2]
        variance = unbiased * ((count - 1) / count)
    run.seen[f"{name}.mean"] = mean
    run.seen[f"{name}.variance"] = variance
    return output


def _max_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    sides = tuple(x.shape[1:3])
    windows = layers.output_shape((layer,), (x.shape[3], *sides))[1:]
    edges = []
    for side, count in zip(sides, windows, strict=True):
        reached = (count - 1) * layer.stride + layer.kernel  # with ceil the last window may end outside
        edges.append([layer.padding, max(layer.padding, reached - side - layer.padding)])
    if any(map(any, edges)):
        x = tf.pad(x, [[0, 0], *edges, [0, 0]], constant_values=x.dtype.min)
    return tf.nn.max_pool2d(x, layer.kernel, layer.stride, "VALID")


def _average_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    # SAME would exclude the padding from the mean.
    edge = [layer.padding, layer.padding]
    if layer.padding:
        x = tf.pad(x, [[0, 0], edge, edge, [0, 0]])
    return tf.nn.avg_pool2d(x, layer.kernel, layer.stride, "VALID")


def _flatten(_layer: Any, x: Tensor, _: Pass) -> Tensor:
    return tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (x.shape[0], -1))


def _concat(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return tf.concat([compute(branch, x, run) for branch in layer.branches], axis=3)


def _residual(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return tf.nn.relu(compute(layer.body, x, run) + compute(layer.shortcut, x, run))


_LAYERS: dict[type, Callable[[Any, Tensor, Pass], Tensor]] = {
    layers.Conv: _conv,
    layers.Dense: _dense,
    layers.BatchNorm: _norm,
    layers.Relu: lambda layer, x, run: tf.nn.relu(x),
    layers.MaxPool: _max_pool,
    layers.AveragePool: _average_pool,
    layers.GlobalAverage: lambda layer, x, run: tf.reduce_mean(x, axis=(1, 2)),
    layers.Flatten: _flatten,
    layers.Dropout: lambda layer, x, run: run.dropout(layer.name, x) if run.dropout else x,
    layers.Concat: _concat,
    layers.Residual: _residual,
}


class Statistics:
    """The running statistics of a network in one variable: fewer ops make tracing faster."""

    def __init__(self, network: Sequence[layers.Layer], make: Callable[[Any], Tensor]) -> None:
        self._initial = folding.initial_statistics(network)
        self._sizes = [value.size for value in self._initial.values()]
        flat = np.concatenate([*self._initial.values(), np.zeros(0, np.float32)])
        self.variable = tf.Variable(make(flat), trainable=False)
        parts = zip(folding.decays(network), self._sizes, strict=True)
        self._decays = make(np.array([decay for decay, size in parts for _ in range(size)]))

    def named(self) -> dict[str, Tensor]:
        """The statistics by name."""
        return (
            dict(zip(self._initial, tf.split(self.variable, self._sizes), strict=True)) if self._sizes else {}
        )

    def update(self, seen: Sequence[Tensor]) -> None:
        """Update with the statistics of a batch, in the order of ``named``."""
        if self._sizes:
            batch = tf.concat(list(seen), axis=0)
            self.variable.assign(self._decays * self.variable + (1 - self._decays) * batch)
