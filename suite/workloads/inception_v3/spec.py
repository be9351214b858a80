"""Inception v3 without its auxiliary head on ImageNet at 299 pixels: 23,834,568 parameters.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016; sizes as
torchvision's ``inception.py`` and Gluon's ``inception_v3``. The auxiliary head is left out, as in Gluon and
Keras: inference does not use it, and all frameworks must compute the same model. No recipe from scratch is
published for this variant; the suite defines one (batch 256, rate 0.1 with a cosine over 90 epochs of 5,004
steps).
"""

from __future__ import annotations

from suite.common.layers import AveragePool, Init, Layer, MaxPool, Network
from suite.workloads._classification.inception import Units, classifier, parallel
from suite.workloads._classification.specification import (
    IMAGENET_MEAN,
    IMAGENET_SCALE,
    Classification,
    Dimensions,
)

INIT: Init = ("normal", "0.1")
ROW, COLUMN = (1, 7), (7, 1)


def network(dims: Dimensions) -> Network:
    """The layers. ``dims.width`` replaces the 32 channels of the stem, all others in proportion."""
    unit = Units(dims.width, 32, lambda inputs, kernel: INIT, "1e-3", dims.decay, dims.beta)
    found: list[Layer] = [
        *unit.conv("stem.0", 3, 32, 3, 2),
        *unit.conv("stem.1", 32, 32, 3),
        *unit.same("stem.2", 32, 64, 3),
        MaxPool(3, 2),
        *unit.same("stem.3", 64, 80),
        *unit.conv("stem.4", 80, 192, 3),
        MaxPool(3, 2),
    ]
    for index, (inputs, pooled) in enumerate(((192, 32), (256, 64), (288, 64))):
        found += _a(unit, f"a{index}", inputs, pooled)
    found += _b(unit, "b", 288)
    for index, channels in enumerate((128, 160, 160, 192)):
        found += _c(unit, f"c{index}", 768, channels)
    found += _d(unit, "d", 768)
    for index, inputs in enumerate((1280, 2048)):
        found += _e(unit, f"e{index}", inputs)
    return (*found, *classifier(unit.channels(2048), dims.classes, INIT))


def _a(unit: Units, name: str, inputs: int, pooled: int) -> Network:
    return parallel(
        unit.same(f"{name}.0", inputs, 64),
        unit.sames(f"{name}.1", inputs, (48, 1), (64, 5)),
        unit.sames(f"{name}.2", inputs, (64, 1), (96, 3), (96, 3)),
        (AveragePool(3, 1, 1), *unit.same(f"{name}.3", inputs, pooled)),
    )


def _b(unit: Units, name: str, inputs: int) -> Network:
    return parallel(
        unit.conv(f"{name}.0", inputs, 384, 3, 2),
        (
            *unit.sames(f"{name}.1", inputs, (64, 1), (96, 3)),
            *unit.conv(f"{name}.1.2", 96, 96, 3, 2),
        ),
        (MaxPool(3, 2),),
    )


def _c(unit: Units, name: str, inputs: int, c: int) -> Network:
    return parallel(
        unit.same(f"{name}.0", inputs, 192),
        unit.sames(f"{name}.1", inputs, (c, 1), (c, ROW), (192, COLUMN)),
        unit.sames(f"{name}.2", inputs, (c, 1), (c, COLUMN), (c, ROW), (c, COLUMN), (192, ROW)),
        (AveragePool(3, 1, 1), *unit.same(f"{name}.3", inputs, 192)),
    )


def _d(unit: Units, name: str, inputs: int) -> Network:
    return parallel(
        (*unit.same(f"{name}.0.0", inputs, 192), *unit.conv(f"{name}.0.1", 192, 320, 3, 2)),
        (
            *unit.sames(f"{name}.1", inputs, (192, 1), (192, ROW), (192, COLUMN)),
            *unit.conv(f"{name}.1.3", 192, 192, 3, 2),
        ),
        (MaxPool(3, 2),),
    )


def _e(unit: Units, name: str, inputs: int) -> Network:
    def halves(branch: str, into: int) -> Network:
        row, column = (
            unit.same(f"{branch}.row", into, 384, (1, 3)),
            unit.same(f"{branch}.column", into, 384, (3, 1)),
        )
        return parallel(row, column)

    return parallel(
        unit.same(f"{name}.0", inputs, 320),
        (*unit.same(f"{name}.1.0", inputs, 384), *halves(f"{name}.1", 384)),
        (*unit.sames(f"{name}.2", inputs, (448, 1), (384, 3)), *halves(f"{name}.2", 384)),
        (AveragePool(3, 1, 1), *unit.same(f"{name}.3", inputs, 192)),
    )


SPEC = Classification(
    NAME="inception_v3",
    network=network,
    SIZES={"reference": Dimensions(299, 1000, 32), "mini": Dimensions(80, 4, 8, decay="0.7", beta="1")},
    RECIPES={
        "reference": {"dropout": "0.5", "cosine_steps": "450360"},
        "mini": {"rate": "0.001", "rate_batch": "16", "dropout": "0.2"},
    },
    BATCHES={"reference": (128, 1, 32, 64, 256, 512), "mini": (16, 1, 32)},
    DATASETS={"reference": "imagenet", "mini": "imagenet-mini"},
    MEAN=IMAGENET_MEAN,
    SCALE=IMAGENET_SCALE,
)
