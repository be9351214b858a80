"""Predictions that the host scores, from logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def best(logits: NDArray[Any], index: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """``top5`` int32 [n, min(5, classes)], best class first, and ``index``, the images.

    Ties go to the lower class. The host sorts, so that they are resolved equally in every framework.
    """
    order = np.argsort(-logits.astype(np.float64), axis=1, kind="stable")[:, :5]
    return {"top5": order.astype(np.int32), "index": np.asarray(index)}
