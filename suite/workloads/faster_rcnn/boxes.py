"""Overlap, coding, matching, sampling and suppression of boxes, with fixed shapes and no look at the values.

Boxes are [..., 4]: x1, y1, x2, y2 in pixels. Whatever decides is made a whole number first (overlaps and
scores rounded to a grid), equal ones are decided by place, and whatever is chosen is laid out by place: the
last bit of a sum decides nothing but at the edge of the grid, so that frameworks choose alike.
"""

from __future__ import annotations

import math

from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.ops import Ops, T

GRID = 1 << 16  # steps of an overlap or probability between 0 and 1
LOGIT_STEPS, LOGIT_LIMIT = 1 << 10, 31  # of a score before the sigmoid
HIGHEST = float(1 << 23)  # above every number of an order
TINY = 1e-6


def whole(o: Ops, values: T, steps: int = GRID) -> T:
    """``values`` in units of ``1 / steps``, rounded; what is exact in binary stays clear of the edges."""
    return o.floor(values * steps + 0.5)


def level_of(value: float) -> float:
    """A threshold for numbers from :func:`whole`, rounded as they are."""
    return float(math.floor(value * GRID + 0.5))


def whole_logits(o: Ops, logits: T) -> T:
    """Logits as whole numbers from 1 to 2**16."""
    inside = o.at_most(o.at_least(logits, -LOGIT_LIMIT), LOGIT_LIMIT)
    return whole(o, inside, LOGIT_STEPS) + LOGIT_STEPS * (LOGIT_LIMIT + 1)


def area(o: Ops, boxes: T) -> T:
    """[...] of [..., 4]."""
    x1, y1, x2, y2 = o.columns(boxes)
    return (x2 - x1) * (y2 - y1)


def overlaps(o: Ops, first: T, second: T) -> T:
    """Intersection over union [batch, n, m] of [batch, n, 4] and [batch, m, 4], as whole numbers."""
    ax1, ay1, ax2, ay2 = (o.expand(part, -1) for part in o.columns(first))
    bx1, by1, bx2, by2 = (o.expand(part, -2) for part in o.columns(second))
    wide = o.at_least(o.minimum(ax2, bx2) - o.maximum(ax1, bx1), 0.0)
    high = o.at_least(o.minimum(ay2, by2) - o.maximum(ay1, by1), 0.0)
    both = wide * high
    either = o.expand(area(o, first), -1) + o.expand(area(o, second), -2) - both
    return whole(o, both / o.at_least(either, TINY))


def encode(o: Ops, boxes: T, anchors: T, weights: tuple[float, ...]) -> T:
    """``boxes`` relative to ``anchors``: offsets of the centre and logarithms of the sides, times weights."""
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
    dx, dy, dw, dh = o.columns(deltas)
    wx, wy, ww, wh = weights
    x, y = dx / wx * aw + ax, dy / wy * ah + ay
    half_w = o.exp(o.at_most(dw / ww, spec.LARGEST_STRETCH)) * aw * 0.5
    half_h = o.exp(o.at_most(dh / wh, spec.LARGEST_STRETCH)) * ah * 0.5
    return o.stack((x - half_w, y - half_h, x + half_w, y + half_h))


def _centred(o: Ops, boxes: T) -> tuple[T, T, T, T]:
    x1, y1, x2, y2 = o.columns(boxes)
    wide, high = o.at_least(x2 - x1, TINY), o.at_least(y2 - y1, TINY)  # padding has no logarithm otherwise
    return x1 + wide * 0.5, y1 + high * 0.5, wide, high


def clip(o: Ops, boxes: T, sizes: T) -> T:
    """``boxes`` [batch, n, 4] inside images of ``sizes`` [batch, 2], height and width."""
    x1, y1, x2, y2 = (o.at_least(part, 0.0) for part in o.columns(boxes))
    high, wide = o.cut(sizes, 1, 0, 1), o.cut(sizes, 1, 1, 2)
    return o.stack((o.minimum(x1, wide), o.minimum(y1, high), o.minimum(x2, wide), o.minimum(y2, high)))


def not_thin(o: Ops, boxes: T, least: float) -> T:
    """1 where both sides reach ``least``."""
    x1, y1, x2, y2 = o.columns(boxes)
    return o.mask(x2 - x1 >= least) * o.mask(y2 - y1 >= least)


def match(o: Ops, boxes: T, truth: T, real: T) -> tuple[T, T, T]:
    """Overlaps of ``boxes`` [batch, n, 4] with ``truth`` [batch, m, 4], where ``real`` [batch, m] is 1.

    Returns overlaps [batch, n, m], -1 for padding; the largest of each box [batch, n]; and its place, an
    integer [batch, n].
    """
    there = o.expand(real, -2)
    found = overlaps(o, boxes, truth) * there + there - 1.0
    return found, o.largest(found, -1), o.first(found)


def sample(o: Ops, positive: T, negative: T, order: T, count: int, most: int) -> tuple[T, T, T]:
    """``count`` places of each image: at most ``most`` positives, then negatives, highest ``order`` first.

    ``positive``, ``negative`` [batch, n] are masks that exclude each other, ``order`` [batch, n] distinct
    whole numbers from 1. Returns places, integers [batch, count] ascending; 1 where a place counts (fewer
    may exist); 1 where it is positive.
    """
    ranked = positive * order
    chosen = positive * o.mask(ranked >= o.rank(ranked, most))
    score = chosen * HIGHEST + negative * order
    index = o.best(score, count)
    return index, o.mask(o.take(score, index) > 0.0), o.take(chosen, index)


def suppress(o: Ops, overlap: T, score: T, there: T, threshold: float, rounds: int) -> T:
    """1 for each box that no better, surviving one overlaps by more than ``threshold``: greedy suppression.

    ``overlap`` [batch, n, n] and ``score`` [batch, n] are whole numbers, ``there`` a mask; of equal scores
    the first is better. All boxes are judged at once, ``rounds`` times: after k rounds the answer is
    right for every box with at most k - 1 others above it, each suppressing the next. (Sequential suppression
    gives the same where ``rounds`` exceeds the longest such chain.)
    """
    mine, others = o.expand(score, -1), o.expand(score, -2)
    place = o.span(score.shape[1])
    earlier = o.mask(o.expand(place, 0) < o.expand(place, 1))
    better = o.mask(others > mine) + o.mask(others == mine) * o.expand(earlier, 0)
    blocks = o.mask(overlap > level_of(threshold)) * better * o.expand(there, -2)
    alive = there
    for _ in range(rounds):
        alive = there * o.mask(o.product(blocks, alive) < 0.5)
    return alive
