"""GoogLeNet with batch normalisation and without auxiliary heads on ImageNet: 6,624,904 parameters.

Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, as torchvision's and GluonCV's ``googlenet.py``:
the paper's 5x5 kernels are 3x3 there (pytorch/vision issue 906). No recipe from scratch is published for this
variant; the suite defines one (batch 256, rate 0.1 with a cosine over 90 epochs of 5,004 steps).
"""

from __future__ import annotations

from suite.common.layers import Init, Layer, MaxPool, Network
from suite.workloads._classification.inception import Units, classifier, parallel
from suite.workloads._classification.specification import (
    IMAGENET_MEAN,
    IMAGENET_SCALE,
    Classification,
    Dimensions,
)

# Channels of the branches 1x1; 1x1, 3x3; 1x1, 3x3; pool, 1x1. Two numbers: kernel and stride of a pool.
BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "pool3": (3, 2),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "pool4": (2, 2),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def network(dims: Dimensions) -> Network:
    """The layers. ``dims.width`` replaces the 64 channels of the stem, all others in proportion."""
    init: Init = ("normal", repr(0.01 * dims.gain))
    unit = Units(dims.width, 64, lambda inputs, kernel: init, "1e-3", dims.decay, dims.beta)
    found: list[Layer] = [
        *unit.conv("stem.0", 3, 64, 7, 2, 3),
        MaxPool(3, 2, ceil=True),
        *unit.same("stem.1", 64, 64),
        *unit.same("stem.2", 64, 192, 3),
        MaxPool(3, 2, ceil=True),
    ]
    inputs = 192
    for name, sizes in BLOCKS.items():
        if name.startswith("pool"):
            found.append(MaxPool(sizes[0], sizes[1], ceil=True))
            continue
        first, reduced1, second, reduced2, third, pooled = sizes
        found += parallel(
            unit.same(f"{name}.0", inputs, first),
            unit.sames(f"{name}.1", inputs, (reduced1, 1), (second, 3)),
            unit.sames(f"{name}.2", inputs, (reduced2, 1), (third, 3)),
            (MaxPool(3, 1, 1, ceil=True), *unit.same(f"{name}.3", inputs, pooled)),
        )
        inputs = first + second + third + pooled
    return (*found, *classifier(unit.channels(inputs), dims.classes, init))


SPEC = Classification(
    NAME="googlenet",
    network=network,
    SIZES={
        "reference": Dimensions(224, 1000, 64),
        "mini": Dimensions(64, 4, 16, decay="0.7", beta="1", gain=10.0),
    },
    RECIPES={
        "reference": {"dropout": "0.2", "cosine_steps": "450360"},
        "mini": {"rate": "0.003", "rate_batch": "16", "dropout": "0.2"},
    },
    BATCHES={"reference": (256, 1, 32, 64, 128, 512, 1024), "mini": (16, 1, 32)},
    DATASETS={"reference": "imagenet", "mini": "imagenet-mini"},
    MEAN=IMAGENET_MEAN,
    SCALE=IMAGENET_SCALE,
)
