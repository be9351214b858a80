"""Weights of networks that compute with images NHWC: kernels [height, width, in, out], matrices [in, out]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Axes by their number: from [out, in, height, width], [out, in] or [out], and back.
_STORED = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}
_CANONICAL = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}


def stored(array: NDArray[Any]) -> NDArray[Any]:
    """A canonical weight in the layout of the computation."""
    return np.ascontiguousarray(array.transpose(_STORED[array.ndim]))


def canonical(array: NDArray[Any]) -> NDArray[Any]:
    """The inverse of :func:`stored`."""
    return np.ascontiguousarray(array.transpose(_CANONICAL[array.ndim]))
