"""AlexNet on ImageNet, the variant of "One weird trick": 61,100,840 parameters.

Krizhevsky, arXiv:1404.5997; as torchvision's and Gluon's ``alexnet.py``: no local normalisation, no groups.
Recipe: torchvision ``references/classification``: batch 256, rate 0.01, divided by ten every 30 of 90 epochs
(an epoch is 5,004 steps), weight decay 1e-4; its weights reach 56.5 %.
"""

from __future__ import annotations

from suite.common.layers import (
    Conv,
    Dense,
    Dropout,
    Flatten,
    MaxPool,
    Network,
    Relu,
    inverse_root,
    output_shape,
)
from suite.workloads._classification.specification import (
    IMAGENET_MEAN,
    IMAGENET_SCALE,
    Classification,
    Dimensions,
)


def features(dims: Dimensions) -> Network:
    """The convolutions. ``dims.width`` replaces the 64 channels of the first, all others in proportion."""

    def conv(
        index: int, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 1
    ) -> Network:
        into, out = inputs if inputs == 3 else inputs * dims.width // 64, outputs * dims.width // 64
        init = inverse_root(into * kernel * kernel, dims.gain)
        sides, edges = (kernel, kernel), (padding, padding)
        return Conv(f"conv{index}", into, out, sides, stride, edges, True, init, init), Relu()

    return (
        *conv(1, 3, 64, 11, stride=4, padding=2),
        MaxPool(3, 2),
        *conv(2, 64, 192, 5, padding=2),
        MaxPool(3, 2),
        *conv(3, 192, 384, 3),
        *conv(4, 384, 256, 3),
        *conv(5, 256, 256, 3),
        MaxPool(3, 2),
    )


def network(dims: Dimensions) -> Network:
    """The layers; dropout precedes the first two fully connected layers."""
    convolutions = features(dims)
    channels, height, width = output_shape(convolutions, dims.shape)

    def dense(name: str, inputs: int, outputs: int) -> Dense:
        init = inverse_root(inputs, dims.gain)
        return Dense(name, inputs, outputs, init, init)

    return (
        *convolutions,
        Flatten(),
        Dropout("dropout6"),
        dense("dense6", channels * height * width, dims.hidden),
        Relu(),
        Dropout("dropout7"),
        dense("dense7", dims.hidden, dims.hidden),
        Relu(),
        dense("dense8", dims.hidden, dims.classes),
    )


SPEC = Classification(
    NAME="alexnet",
    network=network,
    SIZES={"reference": Dimensions(224, 1000, 64, 4096), "mini": Dimensions(96, 4, 16, 512, gain=2.0)},
    RECIPES={
        "reference": {"rate": "0.01", "dropout": "0.5", "rate_drops": "150120:0.1 300240:0.1"},
        "mini": {"rate": "0.02", "rate_batch": "32", "dropout": "0.2", "clip": "1"},
    },
    BATCHES={"reference": (256, 1, 32, 64, 128, 512, 1024), "mini": (32, 1, 64)},
    DATASETS={"reference": "imagenet", "mini": "imagenet-mini"},
    MEAN=IMAGENET_MEAN,
    SCALE=IMAGENET_SCALE,
)
