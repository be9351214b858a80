"""Proposals, sampled targets, pooling and detections: the stages between the convolutions and the losses.

All shapes are fixed and no branch depends on values (see ``boxes.py``). No gradient passes through this
module: the pairs pass tensors that are detached from the graph, as in the publications.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from suite.workloads.faster_rcnn import boxes, spec
from suite.workloads.faster_rcnn.ops import Ops, T

# A stage of ``boxes.py`` for which a framework may have a faster way to the same result.
Stage: TypeAlias = Callable[..., T]
UNIT_WEIGHTS = (1.0, 1.0, 1.0, 1.0)  # of the encoding of proposals
LEAST_PROPOSAL_SIDE, LEAST_DETECTION_SIDE = 1e-3, 1e-2  # pixels


@dataclass(frozen=True)
class Constants:
    """:class:`suite.workloads.faster_rcnn.tables.Tables` on the device, in the type of the parameters."""

    grids: tuple[tuple[int, int], ...]
    levels: tuple[int, ...]
    anchors: T
    order: T


@dataclass(frozen=True)
class Truth:
    """The objects of a batch: boxes [batch, m, 4], labels and ``real`` (0 for padding) [batch, m].

    Also ``sizes`` [batch, 2], the images' height and width, and ``turns`` [batch, 2], the offsets at which
    each image's sampling orders of anchors and of regions start.
    """

    boxes: T
    labels: T
    real: T
    sizes: T
    turns: T


@dataclass(frozen=True)
class Sampled:
    """Sampled anchors or regions: their indices, validity (0 or 1), labels [batch, k] and targets [.., 4]."""

    index: T
    valid: T
    labels: T
    targets: T


def truth_of(o: Ops, batch: dict[str, T]) -> Truth:
    """The objects of ``batch``; label 0 is padding."""
    labels = o.to_float(batch["labels"])
    turns = o.to_float(batch["turns"])
    return Truth(batch["boxes"], labels, o.mask(labels > 0), batch["sizes"], turns)


def proposals(
    o: Ops,
    c: Constants,
    dims: spec.Dimensions,
    training: bool,
    logits: T,
    deltas: T,
    sizes: T,
    survivors: Stage = boxes.survivors,
) -> tuple[T, T, T]:
    """Proposals in the order of their anchors: boxes [batch, n, 4], a mask [batch, n] and anchor numbers.

    ``logits`` [batch, anchors] and ``deltas`` [batch, anchors, 4] are the proposer's output. The best anchors
    of each level are decoded and suppressed within their level; the best survivors of all levels remain.
    """
    before, after = (pair[0 if training else 1] for pair in (dims.before, dims.after))
    scores = boxes.whole_logits(o, logits)
    numbers, there = _best_of_levels(o, c, scores, before)
    index = o.to_index(numbers)
    rois = boxes.decode(o, o.gather(deltas, index), o.take_rows(c.anchors, index), UNIT_WEIGHTS)
    rois = boxes.clip(o, rois, sizes)
    score = o.gather(scores, index) * there * boxes.wide_enough(o, rois, LEAST_PROPOSAL_SIDE)
    # Suppression is within each level of each image: they are the batch here.
    shape = (score.shape[0] * len(c.grids), before)
    by_level, score_by_level = o.reshape(rois, (*shape, 4)), o.reshape(score, shape)
    there = o.mask(score_by_level > 0)
    alive = survivors(o, by_level, score_by_level, there, spec.PROPOSAL_NMS, dims.rounds)
    score = score * o.reshape(alive, tuple(score.shape))
    index = o.top_indices(score, after)
    return o.gather(rois, index), o.mask(o.gather(score, index) > 0), o.gather(numbers, index)


def _best_of_levels(o: Ops, c: Constants, scores: T, count: int) -> tuple[T, T]:
    """Numbers of the ``count`` best anchors of each level, and their mask: [batch, levels * count].

    A level with fewer anchors is padded with zeros.
    """
    numbers, there = [], []
    for start, end in zip(c.levels, c.levels[1:], strict=False):
        have = min(count, end - start)
        here = o.to_float(o.top_indices(o.slice_axis(scores, 1, start, end), have)) + start
        numbers.append(here)
        there.append(here * 0 + 1)
        if have < count:
            padding = o.reshape(
                o.arange(scores.shape[0] * (count - have)) * 0, (scores.shape[0], count - have)
            )
            numbers.append(padding)
            there.append(padding)
    return o.concat(numbers, 1), o.concat(there, 1)


def choose_anchors(
    o: Ops,
    c: Constants,
    dims: spec.Dimensions,
    truth: Truth,
    match_anchors: Stage = boxes.match_anchors,
) -> Sampled:
    """Sample anchors for the proposer's losses.

    Positive anchors overlap an object enough, or overlap it most of all anchors; negative ones overlap no
    object much. Labels are 1 for objects; targets are the best object, encoded by :func:`boxes.encode`.
    """
    best, match, nearest = match_anchors(o, c.anchors, truth.boxes, truth.real)
    positive = o.maximum(o.mask(best >= boxes.grid_threshold(spec.PROPOSAL_POSITIVE)), nearest)
    negative = o.mask(best < boxes.grid_threshold(spec.PROPOSAL_NEGATIVE)) * (1 - positive)
    order = _order(o, c, o.expand_dims(o.arange(c.levels[-1]), 0), o.slice_axis(truth.turns, 1, 0, 1))
    sampled = dims.sampled
    index, valid, labels = boxes.sample(o, positive, negative, order, sampled, sampled // 2)
    best_object = o.gather(truth.boxes, o.gather(match, index))
    targets = boxes.encode(o, best_object, o.take_rows(c.anchors, index), UNIT_WEIGHTS)
    return Sampled(index, valid, labels, targets)


def choose_regions(
    o: Ops, c: Constants, dims: spec.Dimensions, found: tuple[T, T, T], truth: Truth
) -> tuple[T, Sampled]:
    """Sample regions [batch, k, 4] for the box head's losses, from the proposals and the objects themselves.

    Labels are classes, 0 for the background; at most a quarter of the regions are objects.
    """
    rois = o.concat((found[0], truth.boxes), 1)
    there = o.concat((found[1], truth.real), 1)
    object_numbers = truth.real * 0 + o.expand_dims(o.arange(dims.objects) + c.levels[-1], 0)
    numbers = o.concat((found[2], object_numbers), 1)
    _, best, match = boxes.match(o, rois, truth.boxes, truth.real)
    enough = o.mask(best >= boxes.grid_threshold(spec.REGION_POSITIVE))
    order = _order(o, c, numbers, o.slice_axis(truth.turns, 1, 1, 2))
    index, valid, positive = boxes.sample(
        o, enough * there, (1 - enough) * there, order, dims.regions, dims.regions // 4
    )
    regions, matched = o.gather(rois, index), o.gather(match, index)
    labels = o.gather(truth.labels, matched) * positive
    targets = boxes.encode(o, o.gather(truth.boxes, matched), regions, spec.BOX_WEIGHTS)
    return regions, Sampled(index, valid, labels, targets)


def _order(o: Ops, c: Constants, numbers: T, turn: T) -> T:
    """The random rank of each of ``numbers`` [1 or batch, n] in an image whose order starts at ``turn``."""
    return o.take_rows(c.order, o.to_index(numbers + turn))


# Pooling


def taps(o: Ops, c: Constants, dims: spec.Dimensions, regions: T) -> tuple[T, T]:
    """The rows that pooling reads and their weights, integers and numbers [batch, k, bins, 16].

    ``bins`` is pool * pool, row by row. Each bin is the mean of 2 x 2 bilinear samples of four values each,
    on the level that fits the region's area (RoIAlign: He et al., "Mask R-CNN", ICCV 2017; unaligned, as
    torchvision's default). Rows are numbered over the pooled levels of the first image, the second image, …
    """
    size = boxes.area(o, regions)
    up = [o.mask(size >= (dims.canonical * factor) ** 2) for factor in (0.5, 1.0, 2.0)]
    grids = c.grids[: spec.POOLED_LEVELS]

    def of_level(values: list[int]) -> T:
        steps = zip(up, values, values[1:], strict=False)
        found = up[0] * 0 + values[0]
        for reached, low, high in steps:
            found = found + reached * (high - low)
        return found

    starts = [sum(h * w for h, w in grids[:level]) for level in range(len(grids))]
    stride = of_level(list(spec.STRIDES[: spec.POOLED_LEVELS]))
    high, wide = of_level([grid[0] for grid in grids]), of_level([grid[1] for grid in grids])
    x1, y1, x2, y2 = (part / stride for part in o.coordinates(regions))
    row, row_weight = _axis_taps(o, dims.pool, y1, y2, high)
    column, column_weight = _axis_taps(o, dims.pool, x1, x2, wide)
    batch, count, pool, reads = regions.shape[0], regions.shape[1], dims.pool, 2 * spec.SAMPLES
    start = o.reshape(of_level(starts), (batch, count, 1, 1, 1, 1))
    rows, columns = (batch, count, pool, 1, reads, 1), (batch, count, 1, pool, 1, reads)
    each = o.reshape(wide, (batch, count, 1, 1, 1, 1))
    index = start + o.reshape(row, rows) * each + o.reshape(column, columns)
    weight = o.reshape(row_weight, rows) * o.reshape(column_weight, columns)
    shape = (batch, count, pool * pool, reads * reads)
    # Rows of an image are exact in float32; those of a large batch are only as integers.
    first = o.to_index(o.arange(batch)) * sum(h * w for h, w in grids)
    row_numbers = o.to_index(o.reshape(index, shape)) + o.reshape(first, (batch, 1, 1, 1))
    return row_numbers, o.reshape(weight, shape)


def _axis_taps(o: Ops, pool: int, low: T, high: T, size: T) -> tuple[T, T]:
    """Grid positions and weights [batch, k, pool * 4] along an axis, for samples from ``low`` to ``high``."""
    length = o.at_least(high - low, 1.0)
    samples = pool * spec.SAMPLES
    centre = o.expand_dims((o.arange(samples) + 0.5) / samples, 0)
    at = o.expand_dims(low, -1) + o.expand_dims(length, -1) * o.expand_dims(centre, 0)
    last = o.expand_dims(size, -1) - 1.0
    inside = o.mask(at >= -1.0) * o.mask(at <= last + 1.0) / spec.SAMPLES
    at = o.minimum(o.at_least(at, 0.0), last)
    below = o.floor(at)
    part = at - below
    batch, count = low.shape
    shape = (batch, count, pool * 2 * spec.SAMPLES)
    positions = o.reshape(o.stack((below, o.minimum(below + 1.0, last))), shape)
    return positions, o.reshape(o.stack(((1.0 - part) * inside, part * inside)), shape)


# Detections


def detections(
    o: Ops,
    dims: spec.Dimensions,
    found: tuple[T, T, T],
    logits: T,
    deltas: T,
    sizes: T,
    survivors: Stage = boxes.survivors,
) -> T:
    """Detections [batch, n, 6]: box, score, class; not ordered by score; padded with zeros.

    ``logits`` [batch, k, classes] and ``deltas`` [batch, k, 4 classes] are the box head's output for the
    proposals ``found``. The best pairs of proposal and class are suppressed within their class.
    """
    classes, batch, count = dims.classes - 1, logits.shape[0], logits.shape[1]
    chance = o.reshape(o.slice_axis(o.softmax(logits), 2, 1, dims.classes), (batch, count * classes))
    score = boxes.whole(o, chance)
    proposed = o.reshape(o.stack([found[1]] * classes), (batch, count * classes))
    score = score * o.mask(score > boxes.grid_threshold(spec.LEAST_SCORE)) * proposed
    index = o.top_indices(score, dims.candidates)
    region = o.floor((o.to_float(index) + 0.5) / classes)
    label = o.to_float(index) - region * classes + 1.0
    moves = o.slice_axis(o.reshape(deltas, (batch, count, dims.classes, 4)), 2, 1, dims.classes)
    moves = o.gather(o.reshape(moves, (batch, count * classes, 4)), index)
    near = o.gather(found[0], o.to_index(region))
    rois = boxes.clip(o, boxes.decode(o, moves, near, spec.BOX_WEIGHTS), sizes)
    score = o.gather(score, index)
    there = o.mask(score > 0) * boxes.wide_enough(o, rois, LEAST_DETECTION_SIDE)
    alive = survivors(o, rois, score, there, spec.DETECTION_NMS, dims.rounds, label)
    rest = o.top_indices(alive * score, dims.detections)
    kept = o.gather(alive, rest)
    columns = [o.gather(part, rest) * kept for part in o.coordinates(rois)]
    return o.stack((*columns, o.gather(o.gather(chance, index), rest) * kept, o.gather(label, rest) * kept))
