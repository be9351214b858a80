"""ResNet-152 v1.5 on ImageNet: 60,192,808 parameters.

The recipe is that of ResNet-50 (NVIDIA DeepLearningExamples); torchvision's weights of this model reach
78.3 %.
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
    return resnet.imagenet(dims, (3, 8, 36, 3))


SPEC = Classification(
    NAME="resnet152",
    network=network,
    SIZES={
        "reference": Dimensions(224, 1000, 64),
        "mini": Dimensions(64, 4, 8, decay="0.7", gamma="0.2", beta="1"),
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
    BATCHES={"reference": (128, 1, 32, 64, 256, 512), "mini": (12, 1, 32)},
    DATASETS={"reference": "imagenet", "mini": "imagenet-mini"},
    MEAN=IMAGENET_MEAN,
    SCALE=IMAGENET_SCALE,
    VARIANT="v1.5",
)
