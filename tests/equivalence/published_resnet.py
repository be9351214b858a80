"""A bottleneck ResNet with the parameter names of torchvision's checkpoints, written from those names."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1, added to the input or its projection."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != 4 * width:
            projection = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        beside = x if self.downsample is None else self.downsample(x)
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        found: Tensor = (self.bn3(self.conv3(x)) + beside).relu()
        return found


class ResNet(nn.Module):
    """``blocks`` in each of four stages; the stem has ``width`` channels."""

    def __init__(self, blocks: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            here = width << stage
            parts = [Bottleneck(inputs, here, 2 if stage else 1)]
            parts += [Bottleneck(4 * here, here, 1) for _ in range(count - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*parts))
            inputs = 4 * here
        self.fc = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> list[Tensor]:
        """After the stem with its pool, and after each stage."""
        found = [nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)]
        for stage in range(1, 5):
            found.append(self.get_submodule(f"layer{stage}")(found[-1]))
        return found
