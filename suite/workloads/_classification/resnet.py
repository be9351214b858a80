"""Bottleneck residual networks, version 1.5: the stride is on the 3x3 convolution. Standard library only.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; the position of the stride as in
torchvision's ``resnet.py`` and NVIDIA DeepLearningExamples (``resnet50v1.5``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from suite.common.layers import (
    BatchNorm,
    Conv,
    Dense,
    GlobalAverage,
    Layer,
    MaxPool,
    Network,
    Relu,
    Residual,
    he_normal,
    inverse_root,
)
from suite.workloads._classification.specification import Dimensions

EXPANSION = 4
EPSILON = "1e-5"


def imagenet(dims: Dimensions, blocks: Sequence[int]) -> Network:
    """The network for ImageNet: the stem divides height and width by four."""
    stem = (*convolved("stem", 3, dims.width, 7, dims.decay, stride=2), Relu(), MaxPool(3, 2, 1))
    return (*stem, *stages(dims, blocks), *classifier(dims))


def cifar(dims: Dimensions, blocks: Sequence[int]) -> Network:
    """The network for 32 x 32 images: the stem keeps the size (kuangliu/pytorch-cifar ``resnet.py``)."""
    stem = (*convolved("stem", 3, dims.width, 3, dims.decay), Relu())
    return (*stem, *stages(dims, blocks), *classifier(dims))


def convolved(
    name: str, inputs: int, outputs: int, kernel: int, decay: str, stride: int = 1
) -> tuple[Conv, BatchNorm]:
    """A convolution without bias, padded to keep the size at stride 1, and its normalisation."""
    sides, edges = (kernel, kernel), (kernel // 2, kernel // 2)
    init = he_normal(outputs, sides)
    conv = Conv(f"{name}.conv", inputs, outputs, sides, stride, edges, bias=False, init=init)
    return conv, BatchNorm(f"{name}.norm", outputs, EPSILON, decay)


def bottleneck(name: str, inputs: int, width: int, stride: int, dims: Dimensions) -> Residual:
    """A residual block of 1x1, 3x3 and 1x1 convolutions; the shortcut is projected where shapes differ."""
    outputs, decay = width * EXPANSION, dims.decay
    first, first_norm = convolved(f"{name}.0", inputs, width, 1, decay)
    second, second_norm = convolved(f"{name}.1", width, width, 3, decay, stride)
    third, third_norm = convolved(f"{name}.2", width, outputs, 1, decay)
    body: Network = (
        *(first, replace(first_norm, beta=dims.beta), Relu()),
        *(second, replace(second_norm, beta=dims.beta), Relu()),
        *(third, replace(third_norm, gamma=dims.gamma)),
    )
    same = inputs == outputs and stride == 1
    return Residual(body, () if same else convolved(f"{name}.shortcut", inputs, outputs, 1, decay, stride))


def stages(dims: Dimensions, blocks: Sequence[int]) -> Network:
    """The four stages; each but the first halves the size and doubles the width."""
    network: list[Layer] = []
    inputs = dims.width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride, width = (2 if stage and not block else 1), dims.width << stage
            network.append(bottleneck(f"stage{stage + 1}.{block}", inputs, width, stride, dims))
            inputs = width * EXPANSION
    return tuple(network)


def classifier(dims: Dimensions) -> Network:
    """The mean over positions and a fully connected layer, initially uniform within 1 / sqrt(inputs)."""
    inputs = dims.width * 8 * EXPANSION
    init = inverse_root(inputs)
    return GlobalAverage(), Dense("classifier", inputs, dims.classes, init, init)
