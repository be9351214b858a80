"""A trained backbone for Faster R-CNN in torchvision's format, and each framework's results with it.

``python -m tests.equivalence.faster_rcnn_start publish FOLDER`` writes, in PyTorch, checkpoints of a small
ResNet and its features of one image; ``… start FRAMEWORK FOLDER FILE`` what a pair starts from.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from suite.common.stream import Stream
from suite.workloads.faster_rcnn import backbone, spec
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from suite.contract import Job

DIMS = spec.dimensions("mini", "r50-fpn")
BLOCKS, WIDTH = DIMS.blocks, DIMS.width
CLASSES = 10


def job(framework: str, precision: str, folder: Path) -> Job:
    """A quality run of the mini model that starts from the backbone in ``folder``."""
    return replace(load("faster_rcnn").job(framework, precision), mode="quality", data_dir=str(folder))


def image() -> Any:
    """[1, height, width, 3] uint8."""
    return Stream("test", "image").integers(256, 128 * 128 * 3).astype(np.uint8).reshape(1, 128, 128, 3)


def publish(folder: Path) -> None:
    """Checkpoints in both file formats of ``torch.save``, one that calls a function, and the features."""
    import torch

    from tests.equivalence import published_resnet

    torch.manual_seed(1)
    net = published_resnet.ResNet(BLOCKS, WIDTH, CLASSES)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0, 0.1)
            torch.nn.init.normal_(module.running_mean, 0, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    torch.save(net.state_dict(), folder / "new.pth")
    torch.save(net.state_dict(), folder / "old.pth", _use_new_zipfile_serialization=False)
    torch.save(dict(net.named_parameters()), folder / "parameters.pth")
    torch.save({"conv1.weight": Path("/")}, folder / "other.pth")
    big = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    views = {
        "transposed": big.transpose(0, 2),
        "part": big[1, 1:, ::2],
        "half": big.half(),
        "one": torch.tensor(3),
    }
    torch.save(views, folder / "views.pth")
    np.savez(folder / "views.npz", **{name: view.numpy() for name, view in views.items()})
    with torch.no_grad():
        found = net.double().eval().features(torch.from_numpy(_normalised()))
    np.savez(folder / "features.npz", *[feature.numpy() for feature in found])


def _normalised() -> Any:
    mean, scale = (np.array([float(part) for part in parts]) for parts in (spec.MEAN, spec.SCALE))
    return ((image() / 255 - mean) / scale).transpose(0, 3, 1, 2)


def start(framework: str, folder: Path, file: str) -> None:
    """A pair's initial values and first results, and in PyTorch the features of its backbone."""
    backbone.TRAINED = ("mini",)
    case = load("faster_rcnn")
    case.compile_quickly(framework)  # also for fp32: the test compares only which values its step changes
    pair = build(case, job(framework, "fp32", folder))
    found = {f"initial/{name}": value for name, value in pair.parameters().items()}
    pair.step(0)
    found |= {f"stepped/{name}": value for name, value in pair.parameters().items()}
    pair.reset()
    found |= {f"reset/{name}": value for name, value in pair.parameters().items()}
    exact = build(case, job(framework, "fp64", folder))
    found["outputs"] = exact.outputs(0)
    if framework == "pytorch":
        import torch

        from suite.frameworks.pytorch import layers

        x, run = torch.from_numpy(_normalised()), layers.Pass(exact._model._folded(exact.masters))
        with torch.no_grad():
            for number, part in enumerate(exact._model._parts):
                x = layers.compute(part, x, run)
                found[f"feature/{number}"] = x.numpy()
    np.savez(file, **found)


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(Path(sys.argv[2]))
    else:
        start(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
