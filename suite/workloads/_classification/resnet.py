"""Bottleneck residual networks, version 1.5: the stride is on the 3x3 convolution. Standard library only.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; the stride's place as in torchvision's
``resnet.py`` and NVIDIA DeepLearningExamples (``resnet50v1.5``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from suite.workloads.layers import (
    BatchNorm,
    Conv,
    Dense,
    GlobalAverage,
    Layer,
    Network,
    Relu,
    Residual,
    he_normal,
)

EXPANSION = 4
EPSILON, DECAY = "1e-5", "0.9"


def convolved(
    name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, gamma: str = "1", decay: str = DECAY
) -> Network:
    """A convolution without bias that keeps the size (but for its stride), and its normalisation."""
    sides, padding = (kernel, kernel), (kernel // 2, kernel // 2)
    return (
        Conv(
            f"{name}.conv",
            inputs,
            outputs,
            sides,
            stride,
            padding,
            bias=False,
            init=he_normal(outputs, sides),
        ),
        BatchNorm(f"{name}.norm", outputs, EPSILON, decay, gamma),
    )


def bottleneck(name: str, inputs: int, width: int, stride: int, gamma: str, decay: str) -> Residual:
    """1x1, 3x3 and 1x1 beside a shortcut, which is projected where shapes differ; ``gamma`` is the last's."""
    outputs = width * EXPANSION
    body: Network = (
        *convolved(f"{name}.0", inputs, width, 1, decay=decay),
        Relu(),
        *convolved(f"{name}.1", width, width, 3, stride, decay=decay),
        Relu(),
        *convolved(f"{name}.2", width, outputs, 1, gamma=gamma, decay=decay),
    )
    same = inputs == outputs and stride == 1
    shortcut = () if same else convolved(f"{name}.shortcut", inputs, outputs, 1, stride, decay=decay)
    return Residual(body, shortcut)


def stages(inputs: int, width: int, blocks: Sequence[int], gamma: str, decay: str) -> Network:
    """The four stages; each but the first halves the size and doubles the width."""
    found: list[Layer] = []
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            here = width << stage
            found.append(bottleneck(f"stage{stage + 1}.{block}", inputs, here, stride, gamma, decay))
            inputs = here * EXPANSION
    return tuple(found)


def classifier(inputs: int, classes: int) -> Network:
    """The mean over positions and one product, drawn uniformly with half-width 1 / sqrt(inputs)."""
    bound = ("uniform", repr(1 / math.sqrt(inputs)))
    return GlobalAverage(), Dense("classifier", inputs, classes, bound, bound)
