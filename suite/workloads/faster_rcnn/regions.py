"""Proposals, targets, pooled samples and detections: the stages between the convolutions and the losses.

All of fixed shape and without a look at the values (see ``boxes.py``). No gradient passes through here: the
pairs give values that are cut off from the graph, as the publications do.
"""

from __future__ import annotations

from dataclasses import dataclass

from suite.workloads.faster_rcnn import boxes, spec
from suite.workloads.faster_rcnn.ops import Ops, T

PLAIN = (1.0, 1.0, 1.0, 1.0)  # weights of a proposal's coding
THIN_PROPOSAL, THIN_DETECTION = 1e-3, 1e-2


@dataclass(frozen=True)
class Constants:
    """:class:`suite.workloads.faster_rcnn.tables.Tables` on the device, as numbers."""

    grids: tuple[tuple[int, int], ...]
    levels: tuple[int, ...]
    anchors: T
    order: T


@dataclass(frozen=True)
class Truth:
    """The objects of a batch: boxes [batch, m, 4], labels and ``real`` (0 for padding) [batch, m].

    Also sizes of the images [batch, 2], and where each image's two random orders begin, [batch, 2].
    """

    boxes: T
    labels: T
    real: T
    sizes: T
    turns: T


@dataclass(frozen=True)
class Chosen:
    """What the losses are taken over: [batch, k] places, 1 where they count, labels, and goals [.., 4]."""

    index: T
    counts: T
    labels: T
    goals: T


def truth_of(o: Ops, batch: dict[str, T]) -> Truth:
    """The objects of a batch as the data give it; label 0 is padding."""
    labels = o.number(batch["labels"])
    turns = o.number(batch["turns"])
    return Truth(batch["boxes"], labels, o.mask(labels > 0), batch["sizes"], turns)


def proposals(
    o: Ops, c: Constants, dims: spec.Dimensions, training: bool, logits: T, deltas: T, sizes: T
) -> tuple[T, T, T]:
    """Boxes [batch, n, 4], 1 where there is one, and the number of each one's anchor, all by that number.

    From scores ``logits`` [batch, anchors] and ``deltas`` [batch, anchors, 4]: the best of each level,
    overlapping ones of a level suppressed, the best of all levels.
    """
    before, after = (pair[0 if training else 1] for pair in (dims.before, dims.after))
    scores = boxes.whole_logits(o, logits)
    numbers, there = _best_of_levels(o, c, scores, before)
    index = o.integer(numbers)
    places = boxes.decode(o, o.take(deltas, index), o.rows(c.anchors, index), PLAIN)
    places = boxes.clip(o, places, sizes)
    score = o.take(scores, index) * there * boxes.not_thin(o, places, THIN_PROPOSAL)
    # Each level of each image by itself, all of them at once.
    apart = (score.shape[0] * len(c.grids), before)
    by_level, score_by_level = o.shaped(places, (*apart, 4)), o.shaped(score, apart)
    overlap = boxes.overlaps(o, by_level, by_level)
    there = o.mask(score_by_level > 0)
    alive = boxes.suppress(o, overlap, score_by_level, there, spec.PROPOSAL_NMS, dims.rounds)
    score = score * o.shaped(alive, tuple(score.shape))
    index = o.best(score, after)
    return o.take(places, index), o.mask(o.take(score, index) > 0), o.take(numbers, index)


def _best_of_levels(o: Ops, c: Constants, scores: T, count: int) -> tuple[T, T]:
    """Numbers of the ``count`` best anchors of each level, and 1 where there is one: [batch, levels count].

    A level of fewer is filled up with zeros.
    """
    numbers, there = [], []
    for start, end in zip(c.levels, c.levels[1:], strict=False):
        have = min(count, end - start)
        here = o.number(o.best(o.cut(scores, 1, start, end), have)) + start
        numbers.append(here)
        there.append(here * 0 + 1)
        if have < count:
            nothing = o.shaped(o.span(scores.shape[0] * (count - have)) * 0, (scores.shape[0], count - have))
            numbers.append(nothing)
            there.append(nothing)
    return o.join(numbers, 1), o.join(there, 1)


def choose_anchors(o: Ops, c: Constants, dims: spec.Dimensions, truth: Truth) -> Chosen:
    """The anchors that count: those that overlap an object enough, or most of all, against some that do not.

    Labels are 1 for objects, goals the nearest object as :func:`boxes.encode` has it.
    """
    overlap, best, place = boxes.match(o, o.expand(c.anchors, 0), truth.boxes, truth.real)
    peak = o.expand(o.largest(overlap, 1), 1)
    nearest = o.largest(o.mask(overlap >= peak) * o.mask(overlap > 0), 2)
    positive = o.maximum(o.mask(best >= boxes.level_of(spec.PROPOSAL_POSITIVE)), nearest)
    negative = o.mask(best < boxes.level_of(spec.PROPOSAL_NEGATIVE)) * (1 - positive)
    order = _order(o, c, o.expand(o.span(c.levels[-1]), 0), o.cut(truth.turns, 1, 0, 1))
    sampled = dims.sampled
    index, counts, labels = boxes.sample(o, positive, negative, order, sampled, sampled // 2)
    nearest_box = o.take(truth.boxes, o.take(place, index))
    goals = boxes.encode(o, nearest_box, o.rows(c.anchors, index), PLAIN)
    return Chosen(index, counts, labels, goals)


def choose_regions(
    o: Ops, c: Constants, dims: spec.Dimensions, found: tuple[T, T, T], truth: Truth
) -> tuple[T, Chosen]:
    """Regions [batch, k, 4] that the box head learns on, from proposals and the objects themselves.

    Labels are classes, 0 for the background; a quarter at most is of objects.
    """
    places = o.join((found[0], truth.boxes), 1)
    there = o.join((found[1], truth.real), 1)
    own_numbers = truth.real * 0 + o.expand(o.span(dims.objects) + c.levels[-1], 0)
    numbers = o.join((found[2], own_numbers), 1)
    _, best, place = boxes.match(o, places, truth.boxes, truth.real)
    enough = o.mask(best >= boxes.level_of(spec.REGION_POSITIVE))
    order = _order(o, c, numbers, o.cut(truth.turns, 1, 1, 2))
    index, counts, positive = boxes.sample(
        o, enough * there, (1 - enough) * there, order, dims.regions, dims.regions // 4
    )
    regions, own = o.take(places, index), o.take(place, index)
    labels = o.take(truth.labels, own) * positive
    goals = boxes.encode(o, o.take(truth.boxes, own), regions, spec.BOX_WEIGHTS)
    return regions, Chosen(index, counts, labels, goals)


def _order(o: Ops, c: Constants, numbers: T, turn: T) -> T:
    """The places of ``numbers`` [1 or batch, n] in each image's order, beginning at ``turn`` [batch, 1]."""
    return o.rows(c.order, o.integer(numbers + turn))


# Pooling


def taps(o: Ops, c: Constants, dims: spec.Dimensions, regions: T) -> tuple[T, T]:
    """Where pooling reads, and how much counts: integers and weights [batch, k, bins, 16].

    ``bins`` is pool * pool, rows first. Each bin is the mean of 2 x 2 bilinear samples of four values each,
    of the level that suits the region's area (RoIAlign: He et al., "Mask R-CNN", ICCV 2017; unaligned, as
    torchvision's default). The integers count rows of the pooled levels, one after the other for each image.
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
    x1, y1, x2, y2 = (part / stride for part in o.columns(regions))
    row, row_weight = _side(o, dims.pool, y1, y2, high)
    column, column_weight = _side(o, dims.pool, x1, x2, wide)
    batch, count, pool, reads = regions.shape[0], regions.shape[1], dims.pool, 2 * spec.SAMPLES
    image = o.shaped(o.span(batch), (batch, 1)) * sum(h * w for h, w in grids)
    start = o.shaped(of_level(starts) + image, (batch, count, 1, 1, 1, 1))
    rows, columns = (batch, count, pool, 1, reads, 1), (batch, count, 1, pool, 1, reads)
    each = o.shaped(wide, (batch, count, 1, 1, 1, 1))
    index = start + o.shaped(row, rows) * each + o.shaped(column, columns)
    weight = o.shaped(row_weight, rows) * o.shaped(column_weight, columns)
    shape = (batch, count, pool * pool, reads * reads)
    return o.integer(o.shaped(index, shape)), o.shaped(weight, shape)


def _side(o: Ops, pool: int, low: T, high: T, size: T) -> tuple[T, T]:
    """Places and weights [batch, k, pool * 4] along one side, of samples from ``low`` to ``high``."""
    length = o.at_least(high - low, 1.0)
    samples = pool * spec.SAMPLES
    centre = o.expand((o.span(samples) + 0.5) / samples, 0)
    at = o.expand(low, -1) + o.expand(length, -1) * o.expand(centre, 0)
    last = o.expand(size, -1) - 1.0
    inside = o.mask(at >= -1.0) * o.mask(at <= last + 1.0) / spec.SAMPLES
    at = o.minimum(o.at_least(at, 0.0), last)
    below = o.floor(at)
    part = at - below
    batch, count = low.shape
    shape = (batch, count, pool * 2 * spec.SAMPLES)
    places = o.shaped(o.stack((below, o.minimum(below + 1.0, last))), shape)
    return places, o.shaped(o.stack(((1.0 - part) * inside, part * inside)), shape)


# Detections


def detections(o: Ops, dims: spec.Dimensions, found: tuple[T, T, T], logits: T, deltas: T, sizes: T) -> T:
    """[batch, n, 6]: box, score, class; all 0 where there are fewer. In no order of merit.

    ``logits`` [batch, k, classes] and ``deltas`` [batch, k, 4 classes] of the proposals ``found``. The best
    pairs of proposal and class, overlapping ones of a class suppressed.
    """
    classes, batch, count = dims.classes - 1, logits.shape[0], logits.shape[1]
    chance = o.shaped(o.cut(o.softmax(logits), 2, 1, dims.classes), (batch, count * classes))
    score = boxes.whole(o, chance)
    proposed = o.shaped(o.stack([found[1]] * classes), (batch, count * classes))
    score = score * o.mask(score > boxes.level_of(spec.LEAST_SCORE)) * proposed
    index = o.best(score, dims.candidates)
    region = o.floor((o.number(index) + 0.5) / classes)
    label = o.number(index) - region * classes + 1.0
    moves = o.cut(o.shaped(deltas, (batch, count, dims.classes, 4)), 2, 1, dims.classes)
    moves = o.take(o.shaped(moves, (batch, count * classes, 4)), index)
    near = o.take(found[0], o.integer(region))
    places = boxes.clip(o, boxes.decode(o, moves, near, spec.BOX_WEIGHTS), sizes)
    score = o.take(score, index)
    there = o.mask(score > 0) * boxes.not_thin(o, places, THIN_DETECTION)
    alike = o.mask(o.expand(label, -1) == o.expand(label, -2))
    overlap = boxes.overlaps(o, places, places) * alike
    alive = boxes.suppress(o, overlap, score, there, spec.DETECTION_NMS, dims.rounds)
    rest = o.best(alive * score, dims.detections)
    kept = o.take(alive, rest)
    columns = [o.take(part, rest) * kept for part in o.columns(places)]
    return o.stack((*columns, o.take(o.take(chance, index), rest) * kept, o.take(label, rest) * kept))
