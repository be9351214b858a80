"""What the algorithm reads besides weights and batches: anchors and the order of sampling (numpy only)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.workloads.faster_rcnn import spec


@dataclass(frozen=True)
class Tables:
    """Constants of one shape of images.

    ``anchors`` [n, 4] float32, corners x1, y1, x2, y2 in pixels, by level, row, column and ratio; a level's
    are ``levels[l]:levels[l + 1]``. ``order`` int32 [2 (n + objects)]: the numbers 1..n + objects in random
    order, twice, so that an image's order is the part from wherever its turn says.
    """

    grids: tuple[tuple[int, int], ...]
    levels: tuple[int, ...]
    anchors: NDArray[np.float32]
    order: NDArray[np.int32]


def tables(dims: spec.Dimensions, height: int, width: int) -> Tables:
    """The constants for images of ``height`` and ``width``."""
    grids = dims.grids(height, width)
    parts = [
        _anchors(side, stride, *grid)
        for side, stride, grid in zip(dims.anchors, spec.STRIDES, grids, strict=True)
    ]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    places = 1 + Stream("order", spec.NAME, ends[-1] + dims.objects).permutation(ends[-1] + dims.objects)
    order = np.concatenate((places, places)).astype(np.int32)
    return Tables(grids, tuple(ends), np.concatenate(parts), order)


def turns(dims: spec.Dimensions, height: int, width: int, count: int, *key: str | int) -> NDArray[np.int32]:
    """[count, 2] random places in the order of :class:`Tables`."""
    length = len(tables(dims, height, width).order) // 2
    return Stream("turns", *key).integers(length, 2 * count).reshape(count, 2).astype(np.int32)


def _anchors(side: int, stride: int, height: int, width: int) -> NDArray[np.float32]:
    """Boxes of area ``side`` squared, one a ratio, centred on multiples of ``stride``; corners rounded."""
    shapes = []
    for ratio in spec.RATIOS:
        tall = math.sqrt(float(ratio))
        wide, high = round(side / tall / 2), round(side * tall / 2)
        shapes.append((-wide, -high, wide, high))
    y, x = np.meshgrid(np.arange(height) * stride, np.arange(width) * stride, indexing="ij")
    centres = np.stack((x, y, x, y), axis=-1).reshape(-1, 1, 4)
    return (centres + np.array(shapes).reshape(1, -1, 4)).reshape(-1, 4).astype(np.float32)
