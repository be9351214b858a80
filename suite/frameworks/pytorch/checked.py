"""A compiled function that is trusted only after it has agreed with the plain one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_BOUNDS = {torch.float64: 1e-8, torch.float32: 1e-3}  # relative, in norm; 1e-3 leaves room for TF32
_HALF = 5e-2  # where products are computed in bf16 or fp16


class WrongCode(RuntimeError):
    """A compiler's code computes something else than what it was made from."""


class Checked:
    """``compiled``, compared with ``plain`` at the first call for each set of shapes.

    For functions of tensors that give one tensor and draw no random numbers. Compilers fuse across layers,
    and one was seen to be wrong on two layers that are right alone: what is measured must be the model.
    """

    def __init__(
        self, compiled: Callable[..., Tensor], plain: Callable[..., Tensor], compute: torch.dtype
    ) -> None:
        self._compiled, self._plain, self._compute = compiled, plain, compute
        self._seen: set[Any] = set()

    def __call__(self, *tensors: Tensor) -> Tensor:
        """What ``compiled`` gives; :class:`WrongCode` where it is not what ``plain`` gives."""
        found = self._compiled(*tensors)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._seen:
            self._compare(found, self._plain(*tensors))
            self._seen.add(shapes)
        return found

    def _compare(self, found: Tensor, wanted: Tensor) -> None:
        apart = torch.linalg.vector_norm((found - wanted).double())
        relative = float(apart / torch.linalg.vector_norm(wanted.double()).clamp(min=1e-30))
        bound = _BOUNDS.get(self._compute, _HALF)
        if not relative <= bound:
            raise WrongCode(
                f"torch.compile: expected outputs within {bound:g} of the uncompiled model's, found "
                f"{relative:.2g}; nothing can be measured on this: take another version of PyTorch, or "
                "framework.fast=false"
            )
