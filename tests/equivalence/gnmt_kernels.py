"""GNMT's fast kernels against the plain operators on the CPU: Triton's in its interpreter, others uncompiled.

``python -m tests.equivalence.gnmt_kernels FILE PACKAGES`` writes outputs, gradients and tokens of both in
fp64, and scores of odd sizes also in half precision, with their gradients. Triton is imported from the folder
PACKAGES. The compiled kernels, and the GPU's own tanh, are checked on a GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch

from suite.workloads.gnmt import pytorch_kernels as kernels
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray


# targets, sources, batch, H: one block and several of rows and of columns
SIZES = ((3, 5, 2, 70), (17, 18, 3, 130), (1, 21, 2, 64))


def scores() -> Iterator[tuple[str, NDArray[Any]]]:
    """Scores and gradients by kernels and, in fp64 of the same inputs, by plain operators."""
    for size in SIZES:
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            targets, sources, batch, width = size
            generator = torch.Generator().manual_seed(0)

            def draw(*shape: int, kind: torch.dtype, generator: Any = generator) -> torch.Tensor:
                return torch.randn(shape, generator=generator, dtype=torch.float64).to(kind)

            wide = torch.promote_types(dtype, torch.float32)
            inputs = [draw(targets, batch, width, kind=dtype), draw(sources, batch, width, kind=dtype)]
            inputs.append(draw(width, kind=wide))
            slopes = draw(batch, targets, sources, kind=wide)
            for way, function in (("fast", kernels.fast_score), ("plain", kernels.plain_score)):
                given = [x if way == "fast" else x.double() for x in inputs]
                given = [x.requires_grad_() for x in given]
                found = function(*given)
                parts = (found, *torch.autograd.grad(found, given, slopes.to(found.dtype)))
                for part, value in zip(("scores", "queries", "keys", "vector"), parts, strict=True):
                    yield f"{way}/{dtype} {size}/{part}", value.detach().double().numpy()


def compute(fast: bool) -> dict[str, NDArray[Any]]:
    """The results of one implementation."""
    case = load("gnmt")
    pair = build(case, case.job("pytorch", "fp64"))
    pair.fast_kernels = fast
    found = {f"gradient/{name}": array for name, array in pair.gradients(0).items()}
    found["outputs"] = pair.outputs(0)
    pair.step(0)
    found["loss"] = pair.collect()[0]
    inference = build(case, case.job("pytorch", "fp64", "infer"))
    inference.fast_kernels = fast
    inference.step(1)
    found["tokens"] = inference.collect()[0]
    return found


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    calls: list[str] = []

    def recorded(function: Any) -> Any:
        """``function``, uncompiled."""
        calls.append(function.__name__)
        return function

    score = mock.patch.object(kernels, "fast_score", wraps=kernels.fast_score)
    with mock.patch.object(kernels, "_compiled", recorded), score as scored:
        plain = compute(fast=False)
        if calls or scored.called:
            raise RuntimeError(f"the plain operators called kernels: {calls}, scores: {scored.called}")
        fast = compute(fast=True)
    calls += ["fast_score"] * scored.called
    found: dict[str, Any] = {"used": np.array(sorted(set(calls)))}
    found |= {f"plain/{name}": array for name, array in plain.items()}
    found |= {f"fast/{name}": array for name, array in fast.items()}
    found |= dict(scores())
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
