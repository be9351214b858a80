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


def models() -> Any:
    """``torchvision.models``."""
    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "DEF")
        for name in _NAMES:
            library.define(name)
        models.library = library  # type: ignore[attr-defined]  # what it defines goes when it is collected
    import torchvision.models

    return torchvision.models
