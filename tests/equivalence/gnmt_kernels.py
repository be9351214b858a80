"""GNMT's fast kernels against the plain operators, uncompiled, in PyTorch's interpreter on the CPU.

``python -m tests.equivalence.gnmt_kernels FILE`` writes outputs, gradients and tokens of both in fp64. The
compiled kernels are checked on a GPU.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from suite.workloads.gnmt import pytorch_kernels as kernels
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


def main(file: str) -> None:
    """See the module."""
    calls: list[str] = []

    def uncompiled(function: Any) -> Any:
        calls.append(function.__name__)
        return function

    plain = compute(fast=False)
    if calls:
        raise RuntimeError(f"the plain operators called kernels: {calls}")
    with mock.patch.object(kernels, "_compiled", uncompiled):
        fast = compute(fast=True)
    found: dict[str, Any] = {"used": np.array(sorted(set(calls)))}
    found |= {f"plain/{name}": array for name, array in plain.items()}
    found |= {f"fast/{name}": array for name, array in fast.items()}
    np.savez(file, **found)


if __name__ == "__main__":
    main(sys.argv[1])
