"""The algorithm's constants for one image shape: anchors and the random sampling order (numpy only)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.workloads.faster_rcnn import spec


@dataclass(frozen=True)
class Tables:
    """The constants for images of one shape.

    ``anchors`` float32 [n, 4] are corners x1, y1, x2, y2 in pixels, by level, row, column and ratio; those of
    level l are ``levels[l]:levels[l + 1]``. ``order`` int32 [2 (n + objects)] is a random permutation of
    1..n + objects, twice in a row: an image's sampling order starts at its offset in it (:func:`turns`).
    """

    grids: tuple[tuple[int, int], ...]
    levels: tuple[int, ...]
    anchors: NDArray[np.float32]
    order: NDArray[np.int32]


@lru_cache(maxsize=4)  # each batch needs them, and they take 45 ms to make
def tables(dims: spec.Dimensions, height: int, width: int) -> Tables:
    """The constants for images of ``height`` and ``width``; not to be changed."""
    grids = dims.grids(height, width)
    parts = [
        _anchors(side, stride, *grid)
        for side, stride, grid in zip(dims.anchors, spec.STRIDES, grids, strict=True)
    ]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    ranks = 1 + Stream("order", spec.NAME, ends[-1] + dims.objects).permutation(ends[-1] + dims.objects)
    order = np.concatenate((ranks, ranks)).astype(np.int32)
    return Tables(grids, tuple(ends), np.concatenate(parts), order)


def turns(
    dims: spec.Dimensions, height: int, width: int, count: int, *key: str | int, first: int = 0
) -> NDArray[np.int32]:
    """Random offsets [count, 2] into the order of :class:`Tables`, for anchors and for regions.

    ``first`` is the index of the first image in the global batch of ``key``.
    """
    length = len(tables(dims, height, width).order) // 2
    return Stream("turns", *key).integers(length, 2 * count, 2 * first).reshape(count, 2).astype(np.int32)


def _anchors(side: int, stride: int, height: int, width: int) -> NDArray[np.float32]:
    """Boxes of area ``side`` squared, one per ratio, centred on multiples of ``stride``; corners rounded."""
    shapes = []
    for ratio in spec.RATIOS:
        tall = math.sqrt(float(ratio))
        wide, high = round(side / tall / 2), round(side * tall / 2)
        shapes.append((-wide, -high, wide, high))
    y, x = np.meshgrid(np.arange(height) * stride, np.arange(width) * stride, indexing="ij")
    centres = np.stack((x, y, x, y), axis=-1).reshape(-1, 1, 4)
    return (centres + np.array(shapes).reshape(1, -1, 4)).reshape(-1, 4).astype(np.float32)
