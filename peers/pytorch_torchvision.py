"""torchvision beside a CPU-only build of PyTorch, for which its wheel on PyPI was not made.

Its compiled operators do not load there, since they are linked to the CUDA build; its Python code then fails
at import for want of their names. Networks without those operators need the names only.
"""

from __future__ import annotations

from typing import Any

import torch

_NAMES = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


_KEPT: list[Any] = []  # what a library defines goes when it is collected


def models() -> Any:
    """``torchvision.models``."""
    if torch.version.cuda is None and not _KEPT:
        library = torch.library.Library("torchvision", "DEF")
        for name in _NAMES:
            library.define(name)
        _KEPT.append(library)
    import torchvision.models

    return torchvision.models
