"""Networks of inference with fused convolutions against the same without, on the CPU.

``python -m tests.equivalence.fused_convolutions`` prints, for each network, how many convolutions were fused,
the largest difference of the outputs relative to the largest, and shapes that the operators announce wrongly.
Plain operations take the place of cuDNN's, which only a GPU has.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from suite import workloads
from suite.common import layers as described
from suite.common.weights import initial
from suite.frameworks.pytorch import fused_convolution, layers

NETWORKS = ("resnet50", "vgg16", "googlenet")


def compared(workload: str) -> dict[str, Any]:
    """What the module prints of one network, at mini scale."""
    spec: Any = workloads.specification(workload)
    dims = spec.dimensions("mini", spec.VARIANTS["mini"][0])
    network = described.folded(spec.network(dims))
    weights = {
        name: layers.stored(torch.from_numpy(value).double())
        for name, value in initial("fused", list(described.parameters(network)))
    }
    generator = torch.Generator().manual_seed(0)
    for name, value in weights.items():
        if name.endswith(".bias"):  # initially zero
            value.copy_(torch.rand(value.shape, generator=generator))
    image = layers.stored(torch.rand(2, 3, dims.image, dims.image, generator=generator, dtype=torch.float64))
    calls: Counter[str] = Counter()
    wrong: list[str] = []

    def announced(kind: str, x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: Any) -> Tensor:
        calls[kind] += 1
        found = F.conv2d(x, weight, bias, stride, tuple(padding))
        expected = fused_convolution._empty(x, weight, bias, stride, padding)
        if (found.shape, found.stride()) != (expected.shape, expected.stride()):
            wrong.append(f"{kind} {tuple(x.shape)} {tuple(weight.shape)} {stride} {padding}")
        return found

    def convolve_relu(x: Tensor, *given: Any) -> Tensor:
        return announced("relu", x, *given).relu()

    def convolve_add_relu(x: Tensor, other: Tensor, *given: Any) -> Tensor:
        return (announced("add", x, *given) + other).relu()

    def fuses(layer: Any, x: Tensor, run: Any) -> bool:
        return isinstance(layer, described.Conv)

    run = layers.Pass(weights)
    plain = layers.compute(network, image, run)
    changes: dict[str, Any] = {
        "convolve_relu": convolve_relu,
        "convolve_add_relu": convolve_add_relu,
        "_fuses": fuses,
    }
    with mock.patch.multiple(layers, create=True, **changes):
        fused = layers.compute(network, image, run)
    apart = float((plain - fused).abs().max() / plain.abs().max())
    return {"calls": calls, "apart": apart, "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps({name: compared(name) for name in NETWORKS}))
