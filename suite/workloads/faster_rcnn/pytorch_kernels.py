"""Triton kernels of the detector: matching of anchors, suppression, pooling of regions and its gradient.

They compute what ``boxes.py`` and ``regions.taps`` describe, without storing the overlaps of all pairs of
boxes, which are most of the memory traffic of the plain operations.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from suite.workloads.faster_rcnn import boxes, spec

CHANNELS = 256  # of a program of pooling, at most: 16 bytes of half precision for each thread of a warp
MATCHED = 1024  # anchors of a program
COMPARED = 128  # boxes of a program that finds which boxes suppress them
WORDS = 8  # words of 32 boxes that are looked through at once
SMALLEST_SIDE: tl.constexpr = tl.constexpr(boxes.SMALLEST_SIDE)
GRID: tl.constexpr = tl.constexpr(boxes.GRID)


@triton.jit
def _taps(low, high, size, sample, count: tl.constexpr, share: tl.constexpr):  # type: ignore[no-untyped-def]
    """The two grid positions of a sample of ``count`` along an axis, and their weights."""
    at = low + tl.maximum(high - low, 1.0) * (2 * sample + 1) / (2 * count)  # in the type of ``low``
    last = (size - 1).to(low.dtype)
    inside = tl.where((at >= -1.0) & (at <= last + 1.0), share, 0.0)
    at = tl.minimum(tl.maximum(at, 0.0), last)
    below = tl.floor(at)
    part = at - below
    above = tl.minimum(below + 1.0, last)
    return below.to(tl.int32), above.to(tl.int32), (1.0 - part) * inside, part * inside


@triton.jit
def _region(regions, levels, number, regions_of_image, rows_of_image, canonical):  # type: ignore[no-untyped-def]
    """A region's edges on its level's grid, that grid's height and width, and its first row in the table."""
    x1, y1 = tl.load(regions + number * 4), tl.load(regions + number * 4 + 1)
    x2, y2 = tl.load(regions + number * 4 + 2), tl.load(regions + number * 4 + 3)
    size = (x2 - x1) * (y2 - y1)
    level = (size >= canonical * canonical * 0.25).to(tl.int32)
    level += (size >= canonical * canonical).to(tl.int32)
    level += (size >= canonical * canonical * 4.0).to(tl.int32)
    stride, height = tl.load(levels + level * 4), tl.load(levels + level * 4 + 1)
    width, start = tl.load(levels + level * 4 + 2), tl.load(levels + level * 4 + 3)
    first = (number // regions_of_image).to(tl.int64) * rows_of_image + start
    return x1 / stride, y1 / stride, x2 / stride, y2 / stride, height, width, first


@triton.jit
def _reads(  # type: ignore[no-untyped-def]
    x1, y1, x2, y2, height, width, first, line, column, down, over, pool: tl.constexpr, samples: tl.constexpr
):
    """The four rows of the table that sample (``down``, ``over``) of a bin reads, and their weights."""
    upper, lower, above, below = _taps(y1, y2, height, line * samples + down, pool * samples, 1.0 / samples)
    left, right, before, behind = _taps(x1, x2, width, column * samples + over, pool * samples, 1.0 / samples)
    top, bottom = first + upper * width, first + lower * width
    rows = top + left, top + right, bottom + left, bottom + right
    return rows, (above * before, above * behind, below * before, below * behind)


@triton.jit(do_not_specialize=["rows_of_image", "regions_of_image"])
def _pool(  # type: ignore[no-untyped-def]
    table, regions, levels, pooled, rows_of_image, regions_of_image, channels,
    canonical: tl.constexpr, pool: tl.constexpr, samples: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """One row of bins of one region: the weighted sum of the rows of ``table`` that each bin reads."""
    number, line = tl.program_id(0), tl.program_id(1)
    x1, y1, x2, y2, height, width, first = _region(
        regions, levels, number, regions_of_image, rows_of_image, canonical
    )
    channel = tl.program_id(2) * block + tl.arange(0, block)
    inside = channel < channels
    for column in range(pool):
        total = tl.zeros((block,), regions.dtype.element_ty)
        for down in tl.static_range(samples):
            for over in tl.static_range(samples):
                rows, weights = _reads(
                    x1, y1, x2, y2, height, width, first, line, column, down, over, pool, samples
                )
                for corner in tl.static_range(4):
                    value = tl.load(table + rows[corner] * channels + channel, mask=inside, other=0)
                    total += value.to(total.dtype) * weights[corner]
        target = pooled + ((number * pool + line) * pool + column).to(tl.int64) * channels + channel
        tl.store(target, total.to(pooled.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows_of_image", "regions_of_image"])
def _pool_backward(  # type: ignore[no-untyped-def]
    slopes, regions, levels, gradient, rows_of_image, regions_of_image, channels,
    canonical: tl.constexpr, pool: tl.constexpr, samples: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Add the slopes of one row of bins of one region to the rows of ``gradient`` that each bin read."""
    number, line = tl.program_id(0), tl.program_id(1)
    x1, y1, x2, y2, height, width, first = _region(
        regions, levels, number, regions_of_image, rows_of_image, canonical
    )
    channel = tl.program_id(2) * block + tl.arange(0, block)
    inside = channel < channels
    for column in range(pool):
        source = slopes + ((number * pool + line) * pool + column).to(tl.int64) * channels + channel
        slope = tl.load(source, mask=inside, other=0).to(gradient.dtype.element_ty)
        for down in tl.static_range(samples):
            for over in tl.static_range(samples):
                rows, weights = _reads(
                    x1, y1, x2, y2, height, width, first, line, column, down, over, pool, samples
                )
                for corner in tl.static_range(4):
                    target = gradient + rows[corner] * channels + channel
                    tl.atomic_add(target, slope * weights[corner], mask=inside, sem="relaxed")


def pool(table: Tensor, regions: Tensor, levels: Tensor, pooled: Tensor, canonical: int) -> None:
    """Write the mean of each bin's samples to ``pooled`` [batch, k, bins, channels].

    ``table`` [rows, channels] has the levels of the first image behind each other, row by row, then the
    second's; ``regions`` is [batch, k, 4] in pixels; ``levels``, int32, has of each level the stride,
    height, width and first row. Sums are in the type of ``regions``.
    """
    programs, sizes, settings = _settings(table, pooled, canonical)
    _pool[programs](table, regions, levels, pooled, *sizes, **settings)


def pool_backward(slopes: Tensor, regions: Tensor, levels: Tensor, gradient: Tensor, canonical: int) -> None:
    """Add ``slopes``, of the shape of :func:`pool`'s result, to ``gradient``, of that of its table.

    The additions are atomic and have no fixed order.
    """
    programs, sizes, settings = _settings(gradient, slopes, canonical)
    _pool_backward[programs](slopes, regions, levels, gradient, *sizes, **settings)


def _settings(
    table: Tensor, pooled: Tensor, canonical: int
) -> tuple[tuple[int, int, int], tuple[int, ...], dict[str, int]]:
    """The programs of a kernel, its sizes and its constants."""
    batch, count, bins, channels = pooled.shape
    side, block = math.isqrt(bins), min(CHANNELS, triton.next_power_of_2(channels))
    constants = {
        "canonical": canonical,
        "pool": side,
        "samples": spec.SAMPLES,
        "block": block,
        "num_warps": 1,
    }
    return (batch * count, side, -(-channels // block)), (len(table) // batch, count, channels), constants


@triton.jit
def _overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2):  # type: ignore[no-untyped-def]
    """Intersection over union of two boxes, in cells of the grid."""
    wide = tl.maximum(tl.minimum(ax2, bx2) - tl.maximum(ax1, bx1), 0.0)
    high = tl.maximum(tl.minimum(ay2, by2) - tl.maximum(ay1, by1), 0.0)
    both = wide * high
    either = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - both
    return tl.floor(both / tl.maximum(either, SMALLEST_SIDE) * GRID + 0.5)


@triton.jit(do_not_specialize=["count"])
def _match(  # type: ignore[no-untyped-def]
    anchors, truth, real, peaks, best, index, nearest, count,
    objects: tl.constexpr, size: tl.constexpr, second: tl.constexpr
):  # fmt: skip
    """Overlaps of some anchors with one image's objects; padding is skipped.

    The first launch finds the best object of each anchor, and adds to each object's largest overlap in
    ``peaks`` [batch, objects]; the second one finds the anchors that have it.
    """
    image = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * size + tl.arange(0, size)
    here = at < count
    x1, y1 = tl.load(anchors + at * 4, mask=here, other=0), tl.load(anchors + at * 4 + 1, mask=here, other=0)
    x2, y2 = (
        tl.load(anchors + at * 4 + 2, mask=here, other=0),
        tl.load(anchors + at * 4 + 3, mask=here, other=0),
    )
    largest = tl.full((size,), -1, anchors.dtype.element_ty)
    chosen = tl.zeros((size,), tl.int64)
    for number in range(objects):
        one = image * objects + number
        if tl.load(real + one) > 0:
            box = truth + one * 4
            overlap = _overlap(
                x1, y1, x2, y2, tl.load(box), tl.load(box + 1), tl.load(box + 2), tl.load(box + 3)
            )
            if second:
                has_peak = (overlap >= tl.load(peaks + one)) & (overlap > 0)
                largest = tl.where(has_peak, 1, largest)
            else:
                larger = overlap > largest
                largest = tl.where(larger, overlap, largest)
                chosen = tl.where(larger, number, chosen)
                tl.atomic_max(peaks + one, tl.max(tl.where(here, overlap, 0), 0), sem="relaxed")
    target = image * count + at
    if second:
        tl.store(nearest + target, tl.maximum(largest, 0), mask=here)
    else:
        tl.store(best + target, largest, mask=here)
        tl.store(index + target, chosen, mask=here)


def match(anchors: Tensor, truth: Tensor, real: Tensor, best: Tensor, index: Tensor, nearest: Tensor) -> None:
    """Write what ``boxes.match_anchors`` returns to ``best``, ``index`` and ``nearest`` [batch, n]."""
    batch, count = best.shape
    peaks = torch.zeros_like(real)
    for second in (False, True):
        _match[-(-count // MATCHED), batch](
            anchors, truth, real, peaks, best, index, nearest, count, real.shape[1], MATCHED, second
        )


@triton.jit(do_not_specialize=["count", "words"])
def _compare(  # type: ignore[no-untyped-def]
    boxes, score, there, labels, suppressors, count, words, limit: tl.constexpr, labelled: tl.constexpr,
    rows: tl.constexpr
):  # fmt: skip
    """Bit k of ``suppressors`` [batch, words, count]: box 32 * word + k suppresses the box if it survives."""
    word, image = tl.program_id(1), tl.program_id(2).to(tl.int64)
    mine = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    other = word * 32 + tl.arange(0, 32)[None, :]
    a, b = image * count + mine, image * count + other
    here, present = mine < count, other < count
    ax1, ay1 = tl.load(boxes + a * 4, mask=here), tl.load(boxes + a * 4 + 1, mask=here)
    ax2, ay2 = tl.load(boxes + a * 4 + 2, mask=here), tl.load(boxes + a * 4 + 3, mask=here)
    bx1, by1 = tl.load(boxes + b * 4, mask=present), tl.load(boxes + b * 4 + 1, mask=present)
    bx2, by2 = tl.load(boxes + b * 4 + 2, mask=present), tl.load(boxes + b * 4 + 3, mask=present)
    overlap = _overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
    my_score, other_score = tl.load(score + a, mask=here), tl.load(score + b, mask=present)
    better = (other_score > my_score) | ((other_score == my_score) & (other < mine))
    found = (overlap > limit) & better & here & (tl.load(there + b, mask=present, other=0) > 0)
    if labelled:
        found &= tl.load(labels + a, mask=here) == tl.load(labels + b, mask=present)
    bits = tl.sum(tl.where(found, 1 << tl.arange(0, 32)[None, :], 0), 1)
    at = tl.program_id(0) * rows + tl.arange(0, rows)
    tl.store(suppressors + (image * words + word) * count + at, bits, mask=at < count)


@triton.jit(do_not_specialize=["count", "words"])
def _decide(  # type: ignore[no-untyped-def]
    suppressors, there, alive, survivors, count, words,
    rounds: tl.constexpr, size: tl.constexpr, few: tl.constexpr
):  # fmt: skip
    """All rounds of one image's suppression. ``survivors`` [batch, size / 32] has a bit for each box."""
    image = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, size)
    exists = tl.load(there + image * count + at, mask=at < count, other=0) > 0
    own = survivors + image * (size // 32)
    word = tl.arange(0, size // 32)
    bit = 1 << tl.arange(0, 32)[None, :]
    left = exists
    tl.store(own + word, tl.sum(tl.where(tl.reshape(left, (size // 32, 32)), bit, 0), 1))
    for _ in range(rounds):
        tl.debug_barrier()  # each thread reads what others stored
        blocked = tl.zeros((size,), tl.int32)
        for first in range(0, size // 32, few):
            chunk = first + tl.arange(0, few)
            living = tl.load(own + chunk, cache_modifier=".cg")[:, None]
            source = suppressors + (image * words + chunk[:, None]) * count + at[None, :]
            mask = (chunk < words)[:, None] & (at < count)[None, :]
            found = tl.load(source, mask=mask, other=0) & living
            blocked |= tl.max((found != 0).to(tl.int32), 0)
        left = exists & (blocked == 0)
        tl.debug_barrier()
        tl.store(own + word, tl.sum(tl.where(tl.reshape(left, (size // 32, 32)), bit, 0), 1))
    tl.store(alive + image * count + at, left.to(alive.dtype.element_ty), mask=at < count)


def suppress(
    boxes: Tensor,
    score: Tensor,
    there: Tensor,
    labels: Tensor | None,
    alive: Tensor,
    limit: float,
    rounds: int,
) -> None:
    """Write to ``alive`` [batch, n] 1 for each box that survives, else 0: see ``boxes.survivors``.

    ``limit`` is the largest overlap, in cells of the grid, that does not suppress.
    """
    batch, count = score.shape
    words = -(-count // 32)
    size = max(32 * WORDS, triton.next_power_of_2(count))
    suppressors = torch.empty(batch, words, count, dtype=torch.int32, device=score.device)
    survivors = torch.empty(batch, size // 32, dtype=torch.int32, device=score.device)
    _compare[-(-count // COMPARED), words, batch](
        boxes, score, there, score if labels is None else labels, suppressors, count, words,
        limit, labels is not None, COMPARED
    )  # fmt: skip
    _decide[batch,](
        suppressors,
        there,
        alive,
        survivors,
        count,
        words,
        rounds,
        size,
        WORDS,
        num_warps=min(16, size // 128),
    )
