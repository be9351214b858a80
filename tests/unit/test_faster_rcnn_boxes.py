"""The box algorithm of Faster R-CNN against plain loops over single boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suite.common.stream import Stream
from suite.workloads.faster_rcnn import boxes, losses, regions, spec
from suite.workloads.faster_rcnn.tables import tables
from tests.fixtures.numpy_ops import Ops

o: Any = Ops()
MINI = spec.dimensions("mini", "r50-fpn")


def random_boxes(count: int, seed: int, side: float = 128) -> Any:
    draws = Stream("test boxes", seed).unit(4 * count).reshape(count, 2, 2)
    low, size = draws[:, 0] * side * 0.6, draws[:, 1] * side * 0.35 + 4
    return np.concatenate((low, low + size), axis=1)


def overlap(a: Any, b: Any) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    both = max(wide, 0.0) * max(high, 0.0)
    either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    return float(both / either)


def greedy(found: Any, score: Any, threshold: float) -> list[int]:
    """Survivors of suppression, one box after the other."""
    selected: list[int] = []
    for index in sorted(range(len(found)), key=lambda at: (-score[at], at)):
        if score[index] > 0 and all(overlap(found[index], found[other]) <= threshold for other in selected):
            selected.append(index)
    return sorted(selected)


def constants() -> regions.Constants:
    made = tables(MINI, 128, 128)
    return regions.Constants(made.grids, made.levels, made.anchors.astype(float), made.order.astype(float))


def test_overlaps_are_rounded_ratios() -> None:
    first, second = random_boxes(20, 1), random_boxes(30, 2)
    found = boxes.overlaps(o, first[None], second[None])[0]
    expected = [[np.floor(overlap(a, b) * 65536 + 0.5) for b in second] for a in first]
    assert np.abs(found - expected).max() <= 1  # the last bit may decide at an edge
    assert found.max() > 6000
    half = boxes.overlaps(o, np.array([[[0, 0, 10, 10]]]), np.array([[[0, 0, 10, 5]]]))
    assert half.item() == boxes.grid_threshold(0.5) == 32768


def test_decode_inverts_encode() -> None:
    anchors, found = random_boxes(50, 3), random_boxes(50, 4)
    coded = boxes.encode(o, found, anchors, spec.BOX_WEIGHTS)
    assert np.allclose(boxes.decode(o, coded, anchors, spec.BOX_WEIGHTS), found)
    shifted = boxes.encode(o, anchors + 1, anchors, (1.0,) * 4)
    assert np.allclose(shifted[:, 0], 1 / (anchors[:, 2] - anchors[:, 0]))
    grown = boxes.decode(o, np.array([[0, 0, 99.0, 0]]), np.array([[0, 0, 8.0, 8]]), (1.0,) * 4)
    assert grown[0, 2] - grown[0, 0] == pytest.approx(8 * 1000 / 16)


def test_padding_never_matches() -> None:
    found, truth = random_boxes(5, 5), random_boxes(3, 6)
    every, best, match = boxes.match(o, found[None], np.stack((truth, truth))[:1], np.array([[1.0, 0, 1]]))
    assert (every[0, :, 1] == -1).all()
    assert set(match[0].tolist()) <= {0, 2}
    _, none, _ = boxes.match(o, found[None], truth[None], np.zeros((1, 3)))
    assert (none == -1).all()
    assert best.shape == (1, 5)


@pytest.mark.parametrize(("positives", "negatives"), [(0, 90), (3, 90), (40, 50), (90, 10), (5, 2)])
def test_sampling_follows_the_order(positives: int, negatives: int) -> None:
    rois = Stream("test sample", positives).permutation(100)
    positive, negative = np.zeros((1, 100)), np.zeros((1, 100))
    positive[0, rois[:positives]] = 1
    negative[0, rois[positives : positives + negatives]] = 1
    order = 1.0 + Stream("test order").permutation(100)[None]
    index, counts, of_object = boxes.sample(o, positive, negative, order, 32, 8)
    ranked = sorted(range(100), key=lambda at: -order[0, at])
    first = [at for at in ranked if positive[0, at]][:8]
    rest = [at for at in ranked if negative[0, at]][: 32 - len(first)]
    chosen = [at for at, counted in zip(index[0], counts[0], strict=True) if counted]
    assert chosen == sorted(first + rest)
    assert [at for at, found in zip(index[0], of_object[0], strict=True) if found] == sorted(first)


@pytest.mark.parametrize("seed", range(8))
def test_suppression_equals_greedy_suppression(seed: int) -> None:
    found = random_boxes(60, seed)
    score = 1.0 + Stream("test scores", seed).integers(12, 60)  # ties
    score[::9] = 0  # masked
    there = (score > 0).astype(float)
    whole = boxes.overlaps(o, found[None], found[None])
    alive = boxes.suppress(o, whole, score[None], there[None], 0.3, 16)[0]
    assert np.flatnonzero(alive).tolist() == greedy(found, score, 0.3)
    assert 3 < alive.sum() < there.sum()


def test_rounds_limit_length_of_suppression_chain() -> None:
    """Each box overlaps only the next one: survivors alternate as far as the rounds reach."""
    found = np.array([[at * 3.0, 0, at * 3.0 + 10, 10] for at in range(9)])
    whole = boxes.overlaps(o, found[None], found[None])
    score, there = 9.0 - np.arange(9)[None], np.ones((1, 9))
    assert boxes.suppress(o, whole, score, there, 0.4, 9)[0].tolist() == [1, 0] * 4 + [1]
    assert boxes.suppress(o, whole, score, there, 0.4, 3)[0][:4].tolist() == [1, 0, 1, 0]


def test_proposals_are_the_best_of_each_level() -> None:
    c = constants()
    count = c.levels[-1]
    logits = Stream("test logits").unit(count) * 8 - 4
    deltas = Stream("test deltas").unit(4 * count).reshape(1, count, 4) * 0.4 - 0.2
    sizes = np.array([[120.0, 100.0]])
    rois, there, numbers = regions.proposals(o, c, MINI, True, logits[None], deltas, sizes)
    whole = np.floor(np.clip(logits, -31, 31) * 1024 + 0.5) + 32768
    decoded = boxes.decode(o, deltas[0], c.anchors, regions.UNIT_WEIGHTS)
    clipped = np.clip(decoded, 0, [100, 120, 100, 120])
    survivors: list[int] = []
    for start, end in zip(c.levels, c.levels[1:], strict=False):
        best = sorted(range(start, end), key=lambda at: (-whole[at], at))[: MINI.before[0]]
        seen = sorted(best)
        selected = greedy(clipped[seen], [whole[at] * _thick(clipped[at]) for at in seen], spec.PROPOSAL_NMS)
        survivors += [seen[at] for at in selected]
    chosen = sorted(sorted(survivors, key=lambda at: (-whole[at], at))[: MINI.after[0]])
    assert there.all()
    assert numbers[0].tolist() == chosen
    assert np.allclose(rois[0], clipped[chosen])


def _thick(box: Any) -> bool:
    return bool(box[2] - box[0] >= 1e-3 and box[3] - box[1] >= 1e-3)


def truth_of(found: Any, labels: list[int], real: list[int]) -> regions.Truth:
    turns = np.array([[17.0, 4.0]])
    return regions.Truth(
        found[None], np.array([labels], float), np.array([real], float), np.array([[128.0, 128]]), turns
    )


def test_anchors_are_chosen_by_overlap() -> None:
    c = constants()
    found = np.array([[10, 10, 58, 60], [70, 20, 90, 50], [3, 90, 5, 92], [0, 0, 0, 0]], float)
    chosen = regions.choose_anchors(o, c, MINI, truth_of(found, [1, 2, 3, 0], [1, 1, 1, 0]))
    whole = np.array([[np.floor(overlap(a, b) * 65536 + 0.5) for b in found[:3]] for a in c.anchors])
    nearest = ((whole == whole.max(axis=0)) & (whole > 0)).any(axis=1)
    positive = (whole.max(axis=1) >= boxes.grid_threshold(0.7)) | nearest
    assert positive.sum() >= 3
    picked = chosen.index[0][chosen.labels[0] == 1]
    assert picked.tolist() == np.flatnonzero(positive).tolist()
    assert chosen.valid.sum() == MINI.sampled
    others = chosen.index[0][chosen.labels[0] == 0]
    assert (whole[others].max(axis=1) < boxes.grid_threshold(0.3)).all()
    targets = boxes.encode(o, found[whole[picked].argmax(axis=1)], c.anchors[picked], regions.UNIT_WEIGHTS)
    assert np.allclose(chosen.targets[0][chosen.labels[0] == 1], targets)


def test_regions_have_label_of_overlapped_object() -> None:
    c = constants()
    found = np.array([[10, 10, 58, 60], [70, 20, 90, 50], [0, 0, 0, 0], [0, 0, 0, 0]], float)
    proposed = np.concatenate((random_boxes(60, 9), found[:2] + 1, found[:2] - 1))[None]
    there, numbers = np.ones((1, 64)), np.arange(64.0)[None]
    there[0, 5] = 0
    rois, chosen = regions.choose_regions(
        o, c, MINI, (proposed, there, numbers), truth_of(found, [2, 3, 0, 0], [1, 1, 0, 0])
    )
    assert chosen.valid.sum() == MINI.regions
    assert 5 not in chosen.index[0][chosen.valid[0] == 1]
    assert 0 < (chosen.labels > 0).sum() <= MINI.regions // 4
    assert {64, 65} <= set(chosen.index[0].tolist())  # the objects themselves
    for box, label in zip(rois[0], chosen.labels[0], strict=True):
        near = [overlap(box, other) for other in found[:2]]
        assert label == ([2, 3][int(np.argmax(near))] if max(near) >= 0.5 else 0)


def pooled(feature: Any, box: Any, stride: int, pool: int) -> Any:
    """One region by the published algorithm: bilinear samples, averaged; [pool, pool, channels]."""
    height, width, _ = feature.shape
    x1, y1, x2, y2 = box / stride
    bin_w, bin_h = max(x2 - x1, 1) / pool, max(y2 - y1, 1) / pool
    found = np.zeros((pool, pool, feature.shape[2]))
    for row, column, v, u in np.ndindex(pool, pool, 2, 2):
        y, x = y1 + (row + (v + 0.5) / 2) * bin_h, x1 + (column + (u + 0.5) / 2) * bin_w
        if not (-1 <= y <= height and -1 <= x <= width):
            continue
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
        low_y, low_x = int(y), int(x)
        for at_y, part_y in ((low_y, 1 - y + low_y), (min(low_y + 1, height - 1), y - low_y)):
            for at_x, part_x in ((low_x, 1 - x + low_x), (min(low_x + 1, width - 1), x - low_x)):
                found[row, column] += feature[at_y, at_x] * part_y * part_x / 4
    return found


def test_pooling_equals_published_roi_align() -> None:
    c = constants()
    levels = [
        Stream("test level", at).unit(2 * h * w * 3).reshape(2, h, w, 3) for at, (h, w) in enumerate(c.grids)
    ]
    table = np.concatenate([level.reshape(2, -1, 3) for level in levels[:4]], axis=1).reshape(-1, 3)
    sides = (
        (2, 3, 5, 7),
        (0, 0, 27, 27),
        (50, 60, 90, 99),
        (5, 5, 120, 100),
        (0, 0, 128, 128),
        (126, 127, 128, 128),
    )
    rois = np.array([sides, sides[::-1]], float)
    index, weight = regions.taps(o, c, MINI, rois)
    found = (table[index] * weight[..., None]).sum(axis=-2)
    for image, region in np.ndindex(2, len(sides)):
        box = rois[image, region]
        size = np.sqrt((box[2] - box[0]) * (box[3] - box[1]))
        level = int(np.clip(np.floor(4 + np.log2(size / MINI.canonical)), 2, 5)) - 2
        expected = pooled(levels[level][image], box, spec.STRIDES[level], MINI.pool)
        assert np.allclose(found[image, region], expected.reshape(-1, 3)), (image, region)


def test_rows_of_a_large_batch_are_exact_in_float32() -> None:
    """An image has 89,250 rows: those from image 188 on are beyond 2**24."""

    class Single(Ops):
        def arange(self, count: int) -> Any:
            return np.arange(count, dtype=np.float32)

        def mask(self, condition: Any) -> Any:
            return np.asarray(condition, np.float32)

    dims = spec.dimensions("reference", "r50-fpn")
    c = regions.Constants(dims.grids(*dims.shapes[0]), (), None, None)
    region = np.array([[[3.0, 5.0, 400.0, 300.0]]], np.float32)
    single: Any = Single()
    index, _ = regions.taps(single, c, dims, np.repeat(region, 400, axis=0))
    rows = sum(high * wide for high, wide in c.grids[: spec.POOLED_LEVELS])
    assert rows * 400 > 2**24
    assert (index == index[:1] + rows * np.arange(400).reshape(-1, 1, 1, 1)).all()


def test_detections_are_the_best_of_each_class() -> None:
    rois = random_boxes(32, 11)
    logits = Stream("test classes").unit(32 * 4).reshape(32, 4) * 3
    deltas = Stream("test moves").unit(32 * 16).reshape(32, 16) - 0.5
    there = np.ones(32)
    there[3] = 0
    found = (rois[None], there[None], np.arange(32.0)[None])
    sizes = np.array([[128.0, 120.0]])
    made = regions.detections(o, MINI, found, logits[None], deltas[None], sizes)[0]
    chance = o.softmax(logits)
    pairs = [(r, k) for r in range(32) for k in (1, 2, 3) if there[r] and chance[r, k] > spec.LEAST_SCORE]
    rounded = {pair: np.floor(chance[pair] * 65536 + 0.5) for pair in pairs}
    pairs = sorted(pairs, key=lambda pair: (-rounded[pair], pair))[: MINI.candidates]
    moved = {
        (r, k): np.clip(
            boxes.decode(o, deltas[r, 4 * k : 4 * k + 4], rois[r], spec.BOX_WEIGHTS),
            0,
            [120, 128, 120, 128],
        )
        for r, k in pairs
    }
    selected: list[tuple[int, int]] = []
    for pair in pairs:
        rivals = [other for other in selected if other[1] == pair[1]]
        if all(overlap(moved[pair], moved[other]) <= spec.DETECTION_NMS for other in rivals):
            selected.append(pair)
    expected = sorted(selected[: MINI.detections])
    assert [int(label) for label in made[:, 5] if label] == [k for _, k in expected]
    rows = [(*moved[pair], chance[pair], pair[1]) for pair in expected]
    assert np.allclose(made[: len(rows)], rows)


def test_losses_equal_formulas() -> None:
    draws = iter(np.split(Stream("test losses").unit(400) * 4 - 2, 40))
    logits, deltas = next(draws)[None], np.stack([next(draws) for _ in range(4)], axis=-1)[None] * 0.1
    targets = np.stack([next(draws) for _ in range(4)], axis=-1)[None, :5] * 0.1
    index, labels = np.array([[0, 2, 4, 6, 8]]), np.array([[1.0, 0, 0, 1, 0]])
    counts = np.array([[1.0, 1, 1, 1, 0]])
    chosen = regions.Sampled(index, counts, labels, targets)
    found = losses.proposal_losses(o, logits, deltas, chosen)
    chance = 1 / (1 + np.exp(-logits[0, index[0]]))
    entropy = -np.log(np.where(labels[0] == 1, chance, 1 - chance))
    apart = np.abs(deltas[0, index[0]] - targets[0])
    smooth = np.where(apart < 1 / 9, apart**2 * 4.5, apart - 1 / 18).sum(axis=1)
    assert np.allclose(found, ((entropy + smooth * labels[0]) * counts[0]).sum() / 4)

    scores, moves = next(draws)[:8].reshape(1, 2, 4), np.concatenate([next(draws) for _ in range(4)])[:32]
    chosen = regions.Sampled(np.zeros((1, 2), int), np.ones((1, 2)), np.array([[0.0, 3]]), targets[:, :2])
    found = losses.region_losses(o, MINI, scores, moves.reshape(1, 2, 16), chosen)
    chances = o.softmax(scores)[0]
    apart = np.abs(moves[28:32] - targets[0, 1])
    smooth_one = np.where(apart < 1 / 9, apart**2 * 4.5, apart - 1 / 18).sum()
    assert np.allclose(found, (-np.log(chances[0, 0]) - np.log(chances[1, 3]) + smooth_one) / 2)
