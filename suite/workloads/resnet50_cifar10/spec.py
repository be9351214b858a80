"""ResNet-50 with a stem for small images on CIFAR-10: 23,520,842 parameters.

Model and recipe: kuangliu/pytorch-cifar, ``models/resnet.py`` and ``main.py``: batch 128, rate 0.1 with a
cosine over 200 epochs of 390 steps, weight decay 5e-4. Its README states 93.62 % (by a recipe of 2017).
Kernels are initialised by He et al.'s rule; that project uses PyTorch's default.
"""

from __future__ import annotations

from suite.common.layers import Network
from suite.workloads._classification import resnet
from suite.workloads._classification.specification import CIFAR_MEAN, CIFAR_SCALE, Classification, Dimensions


def network(dims: Dimensions) -> Network:
    """The layers at the sizes ``dims``."""
    return resnet.cifar(dims, (3, 4, 6, 3))


SPEC = Classification(
    NAME="resnet50_cifar10",
    network=network,
    SIZES={
        "reference": Dimensions(32, 10, 64),
        "mini": Dimensions(32, 10, 8, decay="0.7", gamma="0.2", beta="1"),
    },
    RECIPES={
        "reference": {"rate_batch": "128", "weight_decay": "5e-4", "cosine_steps": "78000"},
        "mini": {"rate": "0.025", "rate_batch": "16"},
    },
    BATCHES={"reference": (128, 1, 32, 64, 256, 512, 1024), "mini": (16, 1, 32)},
    DATASETS={"reference": "cifar-10", "mini": "cifar-10-mini"},
    MEAN=CIFAR_MEAN,
    SCALE=CIFAR_SCALE,
)
