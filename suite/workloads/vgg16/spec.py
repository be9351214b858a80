"""VGG-16 on ImageNet, the paper's configuration D: 138,357,544 parameters.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015;
sizes, dropout and initial values as torchvision's ``vgg.py``. Recipe: torchvision
``references/classification``: batch 256, rate 0.01, divided by ten every 30 of 90 epochs (an epoch is 5,004
steps), weight decay 1e-4; its weights reach 71.6 %.
"""

from __future__ import annotations

from suite.common.layers import (
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Network,
    Relu,
    he_normal,
    output_shape,
)
from suite.workloads._classification.specification import (
    IMAGENET_MEAN,
    IMAGENET_SCALE,
    Classification,
    Dimensions,
)

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions


def network(dims: Dimensions) -> Network:
    """The layers. ``dims.width`` replaces the 64 channels of the first, all others in proportion."""
    found: list[Layer] = []
    inputs = 3
    for stage, (published, count) in enumerate(STAGES, start=1):
        outputs = published * dims.width // 64
        for index in range(1, count + 1):
            name = f"conv{stage}_{index}"
            found += [
                Conv(name, inputs, outputs, (3, 3), 1, (1, 1), True, he_normal(outputs, (3, 3))),
                Relu(),
            ]
            inputs = outputs
        found.append(MaxPool(2, 2))
    channels, height, width = output_shape(found, dims.shape)
    sizes = (channels * height * width, dims.hidden, dims.hidden)
    found.append(Flatten())
    for index in (6, 7):
        found += [dense(index, sizes[index - 6], dims.hidden, dims), Relu(), Dropout(f"dropout{index}")]
    return (*found, dense(8, dims.hidden, dims.classes, dims))


def dense(index: int, inputs: int, outputs: int, dims: Dimensions) -> Dense:
    """A fully connected layer, initially N(0, 0.01); wider at mini scale."""
    return Dense(f"dense{index}", inputs, outputs, ("normal", repr(0.01 * dims.gain)))


SPEC = Classification(
    NAME="vgg16",
    network=network,
    SIZES={"reference": Dimensions(224, 1000, 64, 4096), "mini": Dimensions(64, 4, 8, 512, gain=6.0)},
    RECIPES={
        "reference": {"rate": "0.01", "dropout": "0.5", "rate_drops": "150120:0.1 300240:0.1"},
        "mini": {"rate": "0.02", "rate_batch": "32", "dropout": "0.2", "clip": "1"},
    },
    BATCHES={"reference": (64, 1, 32, 128, 256, 512), "mini": (32, 1, 64)},
    DATASETS={"reference": "imagenet", "mini": "imagenet-mini"},
    MEAN=IMAGENET_MEAN,
    SCALE=IMAGENET_SCALE,
)
