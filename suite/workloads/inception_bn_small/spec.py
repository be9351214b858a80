"""Inception-BN for small images on CIFAR-10, crops of 28 pixels: 1,652,826 parameters.

MXNet ``example/image-classification/symbols/inception-bn.py``, its branch for small images: convolutions
with a bias, normalisation with a trained scale, epsilon 1e-5 + 1e-10. Recipe: that example's README of
2015: batch 128, rate 0.1 times 0.94 in each of 50 epochs of 390 steps; weight decay 1e-4 and kernels from
N(0, 2 / inputs) by its ``common/fit.py``. Images are normalised by mean and deviation as for every workload
on CIFAR-10; the example subtracts the mean image. No quality is published: the target has to be calibrated.
"""

from __future__ import annotations

import math

from suite.common.layers import Dense, GlobalAverage, Init, Layer, MaxPool, Network, Pair
from suite.workloads._classification.inception import Units, parallel
from suite.workloads._classification.specification import CIFAR_MEAN, CIFAR_SCALE, Classification, Dimensions

# Two numbers: channels of parallel 1x1 and 3x3 convolutions. One: those of a strided 3x3 parallel to a pool.
BLOCKS = ((32, 32), (32, 48), (80,), (112, 48), (96, 64), (80, 80), (48, 96), (96,), (176, 160), (176, 160))


def init(inputs: int, kernel: Pair) -> Init:
    """N(0, 2 / fan_in): MXNet's ``Xavier("gaussian", "in", 2)``."""
    return "normal", repr(math.sqrt(2 / (inputs * kernel[0] * kernel[1])))


def network(dims: Dimensions) -> Network:
    """The layers. ``dims.width`` replaces the 96 channels of the stem, all others in proportion."""
    unit = Units(dims.width, 96, init, "1.00001e-5", dims.decay, dims.beta, bias=True)
    found: list[Layer] = [*unit.same("stem", 3, 96, 3)]
    inputs = 96
    for index, sizes in enumerate(BLOCKS):
        name = f"block{index}"
        if len(sizes) == 1:
            found += parallel(unit.conv(f"{name}.0", inputs, sizes[0], 3, 2, 1), (MaxPool(3, 2, 1),))
            inputs += sizes[0]
        else:
            found += parallel(
                unit.same(f"{name}.0", inputs, sizes[0]), unit.same(f"{name}.1", inputs, sizes[1], 3)
            )
            inputs = sum(sizes)
    last = unit.channels(inputs)
    return (*found, GlobalAverage(), Dense("classifier", last, dims.classes, init(last, (1, 1))))


SPEC = Classification(
    NAME="inception_bn_small",
    network=network,
    SIZES={"reference": Dimensions(28, 10, 96), "mini": Dimensions(28, 10, 24, decay="0.7")},
    RECIPES={
        "reference": {"rate_batch": "128", "rate_every": "390:0.94"},
        "mini": {"rate": "0.025", "rate_batch": "16"},
    },
    BATCHES={"reference": (128, 1, 32, 64, 256, 512, 1024), "mini": (16, 1, 32)},
    DATASETS={"reference": "cifar-10", "mini": "cifar-10-mini"},
    MEAN=CIFAR_MEAN,
    SCALE=CIFAR_SCALE,
)
