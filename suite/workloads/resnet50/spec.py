"""ResNet-50 v1.5 on ImageNet: 25,557,032 parameters.

Recipe: NVIDIA DeepLearningExamples, ``PyTorch/Classification/ConvNets/resnet50v1.5`` (equal for MXNet and
TensorFlow): momentum 0.875, rate 0.256 for 256 images, cosine, warm-up of 8 epochs, weight decay 1/32768,
label smoothing 0.1. There 50 epochs reach 75.9 %, and 90, as here, 76.9 %. An epoch is 5,004 steps of 256.
"""

from __future__ import annotations

from suite.common.layers import Network
from suite.workloads._classification import resnet
from suite.workloads._classification.specification import (
    IMAGENET_MEAN,
    IMAGENET_SCALE,
    Classification,
    Dimensions,
)


def network(dims: Dimensions) -> Network:
    """The layers at the sizes ``dims``."""
    return resnet.imagenet(dims, (3, 4, 6, 3))


SPEC = Classification(
    NAME="resnet50",
    network=network,
    SIZES={
        "reference": Dimensions(224, 1000, 64),
        "mini": Dimensions(64, 4, 16, decay="0.7", gamma="0.2", beta="1"),
    },
    RECIPES={
        "reference": {
            "rate": "0.256",
            "momentum": "0.875",
            "weight_decay": "3.0517578125e-05",
            "smoothing": "0.1",
            "warmup_steps": "40032",
            "cosine_steps": "450360",
        },
        "mini": {"rate": "0.02", "rate_batch": "16"},
    },
    BATCHES={"reference": (256, 1, 32, 64, 128, 512, 1024), "mini": (16, 1, 32)},
    DATASETS={"reference": "imagenet", "mini": "imagenet-mini"},
    MEAN=IMAGENET_MEAN,
    SCALE=IMAGENET_SCALE,
    VARIANT="v1.5",
)
