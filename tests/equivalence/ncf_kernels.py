"""NCF's scores by Triton's kernels against the plain operators, in Triton's interpreter on the CPU.

``python -m tests.equivalence.ncf_kernels FILE PACKAGES`` writes scores and all gradients of both, each under
``kernels/<case>`` and ``plain/<case>``, in fp64 and fp32, and of the pair. Triton is imported from the folder
PACKAGES. Its interpreter has no products of bfloat16: in fp32 the kernels compute as in half precision, with
gradients that stay in registers. The compiled kernels are checked on a GPU.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch

from suite.workloads.ncf import pytorch as plain
from suite.workloads.ncf import spec
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Samples and dimensions: more than a program's rows, the published widths, and odd ones. Some users and items
# come often, others never.
SIZES = (
    (37, spec.Dimensions(11, 7, 8, (64, 32, 16, 8))),
    (300, spec.Dimensions(50, 20, 64, (256, 256, 128, 64))),
    (19, spec.Dimensions(5, 30, 3, (22, 17, 5, 2))),
)


def by_both(case: str, count: int, dims: spec.Dimensions, dtype: torch.dtype) -> dict[str, NDArray[Any]]:
    """Scores and gradients of random weights, by their names."""
    from suite.workloads.ncf import pytorch_kernels

    generator = torch.Generator().manual_seed(count)
    weights = {
        one.name: torch.randn(one.shape, generator=generator, dtype=torch.float64)
        .div(one.shape[-1] ** 0.5 if len(one.shape) == 2 else 1)
        .to(dtype)
        .requires_grad_()
        for one in spec.parameters(dims)
    }
    users = (torch.rand(count, generator=generator).square() * dims.users).int()
    items = (torch.rand(count, generator=generator).square() * dims.items).int()
    given = torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    found = {}
    for way in ("kernels", "plain"):
        if way == "kernels":
            scores = pytorch_kernels.scores(users, items, tuple(weights.values()), dtype)
        else:
            scores = plain.logits(weights, users, items, len(dims.layers) - 1)
        gradients = torch.autograd.grad(scores, list(weights.values()), given)
        found[f"{way}/{case}/scores"] = scores.detach().numpy()
        if dtype == torch.float32:
            fixed = tuple(one.detach() for one in weights.values())
            fused = way == "kernels"
            outputs = pytorch_kernels.sigmoids(users, items, fixed, dtype) if fused else scores.sigmoid()
            found[f"{way}/{case}/sigmoids"] = outputs.detach().numpy()
        found |= {f"{way}/{case}/{name}": part.numpy() for name, part in zip(weights, gradients, strict=True)}
    return found


def of_pair(fused: bool) -> dict[str, NDArray[Any]]:
    """Loss and gradients of the pair in fp64."""
    case = load("ncf")
    way = "kernels" if fused else "plain"
    pair = build(case, case.job("pytorch", "fp64"))
    with mock.patch.object(pair, "fused", fused):
        found = {f"{way}/fp64/pair/{name}": array for name, array in pair.gradients(0).items()}
        pair.step(0)
    return found | {f"{way}/fp64/pair/loss": pair.collect()[0]}


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    from suite.workloads.ncf import pytorch_kernels

    pytorch_kernels.EXACT = 64, 64, 32, 4, 1  # fewer programs and turns, which the interpreter runs slowly
    found: dict[str, Any] = {}
    for precision, dtype in (("fp64", torch.float64), ("fp32", torch.float32)):
        for at, (count, dims) in enumerate(SIZES):
            found |= by_both(f"{precision}/{at}", count, dims, dtype)
    for fused in (True, False):
        found |= of_pair(fused)
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
