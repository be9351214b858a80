"""The image classifiers of ``jax_images``, written as functions of images NHWC and a :class:`Model`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from peers.jax_common import Weights, dropout
from suite.workloads.googlenet.spec import BLOCKS as GOOGLENET
from suite.workloads.inception_bn_small.spec import BLOCKS as INCEPTION_SMALL

SAME, VALID = "SAME", "VALID"
ROW, COLUMN = (1, 7), (7, 1)


class Model:
    """Layers that take their weights by name in the order of use.

    ``weights`` are the trained ones, fp32, and ``statistics`` the running mean and variance of each
    normalisation. Training normalises by the batch and leaves the new statistics in ``seen``. Without
    weights, under ``jax.eval_shape``, a model notes those that it needs for :meth:`initial`.
    """

    def __init__(self, weights: Weights, statistics: Weights, key: Any, training: bool, rate: float) -> None:
        self.weights, self.statistics, self.seen = weights, statistics, dict[str, Any]()
        self.training, self._rate, self._key, self._layers = training, rate, key, 0
        self._needed: dict[str, tuple[tuple[int, ...], float, float]] = {}

    def _name(self, kind: str) -> str:
        self._layers += 1
        self._key, _ = jax.random.split(self._key)
        return f"{kind}{self._layers}"

    def _weight(self, name: str, shape: tuple[int, ...], scale: float = 0.0, shift: float = 0.0) -> Any:
        if name not in self.weights:
            self._needed[name] = shape, scale, shift
            self.weights[name] = jnp.zeros(shape)
        return self.weights[name]

    def initial(self) -> Weights:
        """Normal values around a shift. NumPy draws them: JAX would compile a program for it."""
        draw = np.random.default_rng(1)
        return {
            name: jnp.asarray(scale * draw.standard_normal(shape, np.float32) + shift, jnp.float32)
            for name, (shape, scale, shift) in self._needed.items()
        }

    def conv(
        self,
        x: Any,
        outputs: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        padding: Any = SAME,
        bias: bool = False,
        scale: float = 0.0,
    ) -> Any:
        """A convolution; ``padding``: a number for all sides, or a rule. ``scale`` 0: by He's rule."""
        name, sides = self._name("conv"), (kernel, kernel) if isinstance(kernel, int) else kernel
        shape = (*sides, x.shape[3], outputs)
        weight = self._weight(f"{name}.kernel", shape, scale or math.sqrt(2 / math.prod(shape[:3])))
        edges = [(padding, padding)] * 2 if isinstance(padding, int) else padding
        axes, strides = ("NHWC", "HWIO", "NHWC"), (stride, stride)
        found = lax.conv_general_dilated(x, weight.astype(x.dtype), strides, edges, dimension_numbers=axes)
        return found + self._weight(f"{name}.bias", (outputs,)).astype(x.dtype) if bias else found

    def norm(self, x: Any, epsilon: float = 1e-5) -> Any:
        """Batch normalisation, in fp32."""
        name, shape = self._name("norm"), x.shape[3:]
        gamma, beta = self._weight(f"{name}.gamma", shape, shift=1.0), self._weight(f"{name}.beta", shape)
        wide = x.astype(jnp.float32)
        if self.training:
            mean = jnp.mean(wide, axis=(0, 1, 2))
            variance = jnp.maximum(jnp.mean(jnp.square(wide), axis=(0, 1, 2)) - jnp.square(mean), 0)
            self.seen |= {f"{name}.mean": mean, f"{name}.variance": variance}
        else:
            mean, variance = self.statistics[f"{name}.mean"], self.statistics[f"{name}.variance"]
        return ((wide - mean) * (lax.rsqrt(variance + epsilon) * gamma) + beta).astype(x.dtype)

    def unit(self, x: Any, *sizes: Any, epsilon: float = 1e-5, **options: Any) -> Any:
        """Convolution, normalisation, ReLU."""
        return jax.nn.relu(self.norm(self.conv(x, *sizes, **options), epsilon))

    def dense(self, x: Any, outputs: int) -> Any:
        """A fully connected layer."""
        name, inputs = self._name("dense"), x.shape[1]
        weight = self._weight(f"{name}.kernel", (inputs, outputs), 1 / math.sqrt(3 * inputs))
        return x @ weight.astype(x.dtype) + self._weight(f"{name}.bias", (outputs,)).astype(x.dtype)

    def dropout(self, x: Any) -> Any:
        """Dropout while training."""
        self._name("dropout")
        return dropout(self._key, self._rate if self.training else 0.0, x)


def max_pool(x: Any, kernel: int, stride: int, padding: Any = VALID) -> Any:
    """The maximum of each window; ``padding``: a number for all sides, or a rule."""
    edges = [(0, 0), *[(padding, padding)] * 2, (0, 0)] if isinstance(padding, int) else padding
    window, strides = (1, kernel, kernel, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, edges)


def mean_pool(x: Any) -> Any:
    """The mean of each window of 3 x 3, padding counted."""
    total = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), SAME)
    return (total / 9).astype(x.dtype)


def beside(*branches: Any) -> Any:
    """Branches, concatenated along the channels."""
    return jnp.concatenate(branches, axis=3)


def resnet(blocks: tuple[int, ...], small: bool = False) -> Callable[[Model, Any], Any]:
    """ResNet v1.5; ``small``: the stem for images of 32 pixels."""

    def bottleneck(model: Model, x: Any, width: int, stride: int, projected: bool) -> Any:
        shortcut = model.norm(model.conv(x, 4 * width, 1, stride)) if projected else x
        y = model.unit(model.unit(x, width), width, 3, stride, padding=1)
        return jax.nn.relu(model.norm(model.conv(y, 4 * width)) + shortcut)

    def apply(model: Model, x: Any) -> Any:
        x = model.unit(x, 64, 3) if small else max_pool(model.unit(x, 64, 7, 2, padding=3), 3, 2, 1)
        for stage, count in enumerate(blocks):
            for block in range(count):
                x = bottleneck(model, x, 64 << stage, 2 if stage and not block else 1, not block)
        return model.dense(jnp.mean(x, axis=(1, 2)), 10 if small else 1000)

    return apply


def alexnet(model: Model, x: Any) -> Any:
    """The AlexNet of "One weird trick"."""

    def conv(x: Any, outputs: int, kernel: int, stride: int = 1, padding: Any = SAME) -> Any:
        return jax.nn.relu(model.conv(x, outputs, kernel, stride, padding, bias=True))

    x = max_pool(conv(x, 64, 11, 4, padding=2), 3, 2)
    x = max_pool(conv(x, 192, 5), 3, 2)
    x = max_pool(conv(conv(conv(x, 384, 3), 256, 3), 256, 3), 3, 2)
    x = x.reshape(len(x), -1)
    for _ in range(2):
        x = jax.nn.relu(model.dense(model.dropout(x), 4096))
    return model.dense(x, 1000)


def vgg16(model: Model, x: Any) -> Any:
    """Configuration D of the paper."""
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = jax.nn.relu(model.conv(x, outputs, 3, bias=True))
        x = max_pool(x, 2, 2)
    x = x.reshape(len(x), -1)
    for _ in range(2):
        x = model.dropout(jax.nn.relu(model.dense(x, 4096)))
    return model.dense(x, 1000)


def googlenet(model: Model, x: Any) -> Any:
    """GoogLeNet with normalisation, as torchvision's."""

    def unit(x: Any, *sizes: int) -> Any:
        return model.unit(x, *sizes, epsilon=1e-3)

    x = max_pool(model.unit(x, 64, 7, 2, padding=3, epsilon=1e-3), 3, 2, SAME)
    x = max_pool(unit(unit(x, 64), 192, 3), 3, 2, SAME)
    for sizes in GOOGLENET.values():
        if len(sizes) == 2:  # kernel and stride of a pool
            x = max_pool(x, *sizes, SAME)
            continue
        a, b, c, d, e, f = sizes
        pooled = unit(max_pool(x, 3, 1, SAME), f)
        x = beside(unit(x, a), unit(unit(x, b), c, 3), unit(unit(x, d), e, 3), pooled)
    return model.dense(model.dropout(jnp.mean(x, axis=(1, 2))), 1000)


def inception_small(model: Model, x: Any) -> Any:
    """Inception-BN for images of 28 pixels."""
    x = model.unit(x, 96, 3, bias=True)
    for sizes in INCEPTION_SMALL:
        if len(sizes) == 1:
            x = beside(model.unit(x, sizes[0], 3, 2, padding=1, bias=True), max_pool(x, 3, 2, 1))
        else:
            x = beside(model.unit(x, sizes[0], bias=True), model.unit(x, sizes[1], 3, bias=True))
    return model.dense(jnp.mean(x, axis=(1, 2)), 10)


def inception_v3(model: Model, x: Any) -> Any:
    """Inception v3 without its auxiliary head."""

    def unit(x: Any, *sizes: Any, padding: str = SAME) -> Any:
        return model.unit(x, *sizes, padding=padding, epsilon=1e-3)

    def chain(x: Any, *sizes: tuple[int, Any]) -> Any:
        for outputs, kernel in sizes:
            x = unit(x, outputs, kernel)
        return x

    def halved(x: Any, outputs: int) -> Any:
        return unit(x, outputs, 3, 2, padding=VALID)

    x = chain(unit(halved(x, 32), 32, 3, padding=VALID), (64, 3))
    x = max_pool(unit(unit(max_pool(x, 3, 2), 80), 192, 3, padding=VALID), 3, 2)
    for pooled in (32, 64, 64):
        x = beside(
            unit(x, 64),
            chain(x, (48, 1), (64, 5)),
            chain(x, (64, 1), (96, 3), (96, 3)),
            unit(mean_pool(x), pooled),
        )
    x = beside(halved(x, 384), halved(chain(x, (64, 1), (96, 3)), 96), max_pool(x, 3, 2))
    for c in (128, 160, 160, 192):
        x = beside(
            unit(x, 192),
            chain(x, (c, 1), (c, ROW), (192, COLUMN)),
            chain(x, (c, 1), (c, COLUMN), (c, ROW), (c, COLUMN), (192, ROW)),
            unit(mean_pool(x), 192),
        )
    x = beside(
        halved(unit(x, 192), 320),
        halved(chain(x, (192, 1), (192, ROW), (192, COLUMN)), 192),
        max_pool(x, 3, 2),
    )
    for _ in range(2):
        y, z = unit(x, 384), chain(x, (448, 1), (384, 3))
        parts = [unit(one, 384, sides) for one in (y, z) for sides in ((1, 3), (3, 1))]
        x = beside(unit(x, 320), *parts, unit(mean_pool(x), 192))
    return model.dense(model.dropout(jnp.mean(x, axis=(1, 2))), 1000)


NETWORKS: dict[str, Callable[[Model, Any], Any]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "googlenet": googlenet,
    "inception_v3": inception_v3,
    "resnet50": resnet((3, 4, 6, 3)),
    "resnet152": resnet((3, 8, 36, 3)),
    "resnet50_cifar10": resnet((3, 4, 6, 3), small=True),
    "inception_bn_small": inception_small,
}
