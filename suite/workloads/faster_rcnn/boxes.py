"""Overlap, encoding, matching, sampling and suppression of boxes, in fixed shapes without branches on values.

Boxes are [..., 4]: x1, y1, x2, y2 in pixels. Overlaps and scores are rounded to a grid before they are
compared, ties go to the lower index, and selected boxes are ordered by index. So frameworks select the same
boxes although the last bits of their sums differ (except where a value lies at the edge of a grid cell).
"""

from __future__ import annotations

import math

from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.ops import Ops, T

GRID = 1 << 16  # grid cells of an overlap or probability between 0 and 1
LOGIT_STEPS, LOGIT_LIMIT = 1 << 10, 31  # grid cells per unit, and the largest magnitude, of a logit
HIGHEST = float(1 << 23)  # above every sampling order
SMALLEST_SIDE = 1e-6


def whole(o: Ops, values: T, steps: int = GRID) -> T:
    """``values`` in units of ``1 / steps``, rounded: exact binary fractions lie in the middle of a cell."""
    return o.floor(values * steps + 0.5)


def grid_threshold(value: float) -> float:
    """``value`` rounded as :func:`whole` does, to compare with its results."""
    return float(math.floor(value * GRID + 0.5))


def whole_logits(o: Ops, logits: T) -> T:
    """Logits, clipped to +-31, as whole numbers from 1 to 2**16."""
    inside = o.at_most(o.at_least(logits, -LOGIT_LIMIT), LOGIT_LIMIT)
    return whole(o, inside, LOGIT_STEPS) + LOGIT_STEPS * (LOGIT_LIMIT + 1)


def area(o: Ops, boxes: T) -> T:
    """Areas [...] of ``boxes`` [..., 4]."""
    x1, y1, x2, y2 = o.coordinates(boxes)
    return (x2 - x1) * (y2 - y1)


def overlaps(o: Ops, first: T, second: T) -> T:
    """Intersection over union [batch, n, m] of boxes [batch, n, 4] and [batch, m, 4], as whole numbers."""
    ax1, ay1, ax2, ay2 = (o.expand_dims(part, -1) for part in o.coordinates(first))
    bx1, by1, bx2, by2 = (o.expand_dims(part, -2) for part in o.coordinates(second))
    wide = o.at_least(o.minimum(ax2, bx2) - o.maximum(ax1, bx1), 0.0)
    high = o.at_least(o.minimum(ay2, by2) - o.maximum(ay1, by1), 0.0)
    both = wide * high
    either = o.expand_dims(area(o, first), -1) + o.expand_dims(area(o, second), -2) - both
    return whole(o, both / o.at_least(either, SMALLEST_SIDE))


def encode(o: Ops, boxes: T, anchors: T, weights: tuple[float, ...]) -> T:
    """``boxes`` relative to ``anchors``: offsets of centres, logarithms of sides, times ``weights``."""
    ax, ay, aw, ah = _centred(o, anchors)
    bx, by, bw, bh = _centred(o, boxes)
    wx, wy, ww, wh = weights
    return o.stack(
        (
            (bx - ax) / aw * wx,
            (by - ay) / ah * wy,
            o.log(bw / aw) * ww,
            o.log(bh / ah) * wh,
        )
    )


def decode(o: Ops, deltas: T, anchors: T, weights: tuple[float, ...]) -> T:
    """The inverse of :func:`encode`; a side grows by at most ``spec.LARGEST_STRETCH`` in its logarithm."""
    ax, ay, aw, ah = _centred(o, anchors)
    dx, dy, dw, dh = o.coordinates(deltas)
    wx, wy, ww, wh = weights
    x, y = dx / wx * aw + ax, dy / wy * ah + ay
    half_w = o.exp(o.at_most(dw / ww, spec.LARGEST_STRETCH)) * aw * 0.5
    half_h = o.exp(o.at_most(dh / wh, spec.LARGEST_STRETCH)) * ah * 0.5
    return o.stack((x - half_w, y - half_h, x + half_w, y + half_h))


def _centred(o: Ops, boxes: T) -> tuple[T, T, T, T]:
    x1, y1, x2, y2 = o.coordinates(boxes)
    wide, high = (
        o.at_least(x2 - x1, SMALLEST_SIDE),
        o.at_least(y2 - y1, SMALLEST_SIDE),
    )  # keeps the logarithm of padding finite
    return x1 + wide * 0.5, y1 + high * 0.5, wide, high


def clip(o: Ops, boxes: T, sizes: T) -> T:
    """``boxes`` [batch, n, 4] clipped to images of ``sizes`` [batch, 2] (height, width)."""
    x1, y1, x2, y2 = (o.at_least(part, 0.0) for part in o.coordinates(boxes))
    high, wide = o.slice_axis(sizes, 1, 0, 1), o.slice_axis(sizes, 1, 1, 2)
    return o.stack((o.minimum(x1, wide), o.minimum(y1, high), o.minimum(x2, wide), o.minimum(y2, high)))


def wide_enough(o: Ops, boxes: T, least: float) -> T:
    """1 where both sides are at least ``least`` pixels."""
    x1, y1, x2, y2 = o.coordinates(boxes)
    return o.mask(x2 - x1 >= least) * o.mask(y2 - y1 >= least)


def match(o: Ops, boxes: T, truth: T, real: T) -> tuple[T, T, T]:
    """Overlaps of ``boxes`` [batch, n, 4] and objects ``truth`` [batch, m, 4]; ``real`` is 0 for padding.

    Returns overlaps [batch, n, m], -1 for padding; the largest overlap of each box [batch, n]; and the index
    of its object, an integer [batch, n].
    """
    mask = o.expand_dims(real, -2)
    overlap = overlaps(o, boxes, truth) * mask + mask - 1.0
    return overlap, o.max(overlap, -1), o.argmax(overlap)


def match_anchors(o: Ops, anchors: T, truth: T, real: T) -> tuple[T, T, T]:
    """For ``anchors`` [n, 4]: the largest overlap, the index of its object, and 1 for an object's nearest.

    Each is [batch, n]. An object's nearest anchors overlap it, and no other anchor overlaps it more.
    """
    overlap, best, index = match(o, o.expand_dims(anchors, 0), truth, real)
    peak = o.expand_dims(o.max(overlap, 1), 1)
    return best, index, o.max(o.mask(overlap >= peak) * o.mask(overlap > 0), 2)


def sample(o: Ops, positive: T, negative: T, order: T, count: int, most: int) -> tuple[T, T, T]:
    """Sample ``count`` candidates per image: at most ``most`` positives, then negatives, by ``order``.

    ``positive`` and ``negative`` [batch, n] are disjoint masks; ``order`` [batch, n] holds distinct whole
    numbers from 1, highest first. Returns, each [batch, count]: the indices of the samples, ascending
    integers; 1 where a sample is valid (there may be fewer than ``count``); 1 where it is positive.
    """
    ranked = positive * order
    chosen = positive * o.mask(ranked >= o.kth_largest(ranked, most))
    score = chosen * HIGHEST + negative * order
    index = o.top_indices(score, count)
    return index, o.mask(o.gather(score, index) > 0.0), o.gather(chosen, index)


def survivors(
    o: Ops, boxes: T, score: T, there: T, threshold: float, rounds: int, labels: T | None = None
) -> T:
    """:func:`suppress` of ``boxes`` [batch, n, 4]; with ``labels`` [batch, n], only by boxes of the same."""
    overlap = overlaps(o, boxes, boxes)
    if labels is not None:
        overlap = overlap * o.mask(o.expand_dims(labels, -1) == o.expand_dims(labels, -2))
    return suppress(o, overlap, score, there, threshold, rounds)


def suppress(o: Ops, overlap: T, score: T, there: T, threshold: float, rounds: int) -> T:
    """Greedy non-maximum suppression: 1 for each box that survives.

    A box is suppressed by a surviving box with a better score that overlaps it by more than ``threshold``;
    of equal scores the first is better. ``overlap`` [batch, n, n] and ``score`` [batch, n] are whole numbers,
    ``there`` [batch, n] masks the boxes that exist. All boxes are decided together, ``rounds`` times: after k
    rounds the result is right for every box that ends a chain of at most k - 1 better boxes, each
    suppressing the next. Sequential suppression gives the same result if no chain is longer than that.
    """
    mine, others = o.expand_dims(score, -1), o.expand_dims(score, -2)
    index = o.arange(score.shape[1])
    earlier = o.mask(o.expand_dims(index, 0) < o.expand_dims(index, 1))
    better = o.mask(others > mine) + o.mask(others == mine) * o.expand_dims(earlier, 0)
    blocks = o.mask(overlap > grid_threshold(threshold)) * better * o.expand_dims(there, -2)
    alive = there
    for _ in range(rounds):
        alive = there * o.mask(o.matvec(blocks, alive) < 0.5)
    return alive
