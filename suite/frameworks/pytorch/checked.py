"""Comparison of a compiled function with the uncompiled one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_BOUNDS = {torch.float64: 1e-8, torch.float32: 1e-3}  # relative, in norm; 1e-3 leaves room for TF32
_HALF = 5e-2  # where products are computed in bf16 or fp16


class WrongCode(RuntimeError):
    """Compiled code computes another result than its source."""


class Checked:
    """``compiled``, compared with ``plain`` at the first call for each set of shapes.

    For functions of tensors that return one tensor and draw no random numbers. Compilers fuse layers, and a
    compiler was found to be wrong on two fused layers although each layer alone was right.
    """

    def __init__(
        self, compiled: Callable[..., Tensor], plain: Callable[..., Tensor], compute: torch.dtype
    ) -> None:
        self._compiled, self._plain, self._compute = compiled, plain, compute
        self._seen: set[Any] = set()

    def __call__(self, *tensors: Tensor) -> Tensor:
        """The result of ``compiled``; :class:`WrongCode` where it differs from that of ``plain``."""
        output = self._compiled(*tensors)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._seen:
            self._compare(output, self._plain(*tensors))
            self._seen.add(shapes)
        return output

    def _compare(self, output: Tensor, expected: Tensor) -> None:
        difference = torch.linalg.vector_norm((output - expected).double())
        relative = float(difference / torch.linalg.vector_norm(expected.double()).clamp(min=1e-30))
        bound = _BOUNDS.get(self._compute, _HALF)
        if not relative <= bound:
            raise WrongCode(
                f"torch.compile: expected outputs within {bound:g} of the uncompiled model's, found "
                f"{relative:.2g}; use another version of PyTorch, or "
                "framework.fast=false"
            )
