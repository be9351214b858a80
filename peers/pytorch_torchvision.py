"""torchvision with a CPU-only build of PyTorch, which its wheel on PyPI does not support.

Its compiled operators are linked to the CUDA build and do not load; its Python code then fails at import
because their names are missing. Networks without those operators need the names only.
"""

from __future__ import annotations

from typing import Any

import torch

_NAMES = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


_LIBRARIES: list[Any] = []  # a library's definitions vanish when it is collected


def models() -> Any:
    """``torchvision.models``."""
    if torch.version.cuda is None and not _LIBRARIES:
        library = torch.library.Library("torchvision", "DEF")
        for name in _NAMES:
            library.define(name)
        _LIBRARIES.append(library)
    import torchvision.models

    return torchvision.models
