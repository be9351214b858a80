"""Image classifiers as a user would write them in PyTorch: torchvision's networks, ``torch.optim.SGD``.

Differences to the suite: weight decay applies to every parameter, biases and normalisation too; the running
variance is PyTorch's unbiased one; inference normalises by running statistics instead of folding them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from peers.plain import Plain
from peers.pytorch_common import plain, staged, start
from peers.pytorch_torchvision import models
from suite import workloads
from suite.contract import Job
from suite.workloads.inception_bn_small.spec import BLOCKS


def network(workload: str) -> nn.Module:
    """The stock network at its published size."""
    if workload == "inception_bn_small":
        return InceptionSmall()
    zoo = models()
    if workload == "resnet50_cifar10":  # the usual change for images of 32 pixels
        resnet: nn.Module = zoo.resnet50(num_classes=10)
        resnet.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        resnet.maxpool = nn.Identity()
        return resnet
    options: dict[str, Any] = {}
    if workload in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": False}  # their truncated normals take long
    found: nn.Module = getattr(zoo, workload)(**options)
    return found


class Unit(nn.Sequential):
    """Convolution, normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Beside(nn.ModuleList):
    """Branches, concatenated."""

    def forward(self, x: Tensor) -> Tensor:
        """Along the channels."""
        return torch.cat([branch(x) for branch in self], dim=1)


class InceptionSmall(nn.Sequential):
    """Inception-BN for images of 28 pixels: torchvision has none."""

    def __init__(self) -> None:
        found: list[nn.Module] = [Unit(3, 96, 3)]
        channels = 96
        for sizes in BLOCKS:
            if len(sizes) == 1:
                found.append(Beside([Unit(channels, sizes[0], 3, 2), nn.MaxPool2d(3, 2, 1)]))
                channels += sizes[0]
            else:
                found.append(Beside([Unit(channels, sizes[0], 1), Unit(channels, sizes[1], 3)]))
                channels = sum(sizes)
        super().__init__(*found, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def make(job: Job) -> Plain:
    """Training by SGD with momentum, or logits."""
    device, mixed = start(job)
    _, batch_of = staged(job, device)
    spec: Any = workloads.specification(job.key.workload)
    model = network(job.key.workload).to(device)
    mean, scale = (
        torch.tensor([float(value) for value in values], device=device).view(3, 1, 1)
        for values in (spec.MEAN, spec.SCALE)
    )
    lossy = nn.CrossEntropyLoss(label_smoothing=job.number("smoothing"))
    sgd = torch.optim.SGD(
        model.parameters(), lr=1e-3, momentum=job.number("momentum"), weight_decay=job.number("weight_decay")
    )

    def forward(images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).contiguous().float().div(255).sub(mean).div(scale)
        with mixed:
            found: Tensor = model(pixels)
        return found

    def train(index: int) -> Tensor:
        batch = batch_of(index)
        sgd.zero_grad()
        loss: Tensor = lossy(forward(batch["images"]).float(), batch["labels"].long())
        loss.backward()
        sgd.step()
        return loss.detach()

    @torch.no_grad()
    def infer(index: int) -> Tensor:
        return forward(batch_of(index)["images"])

    training = job.key.phase == "train"
    model.train(training)
    return plain(model, train if training else infer)
