"""Faster R-CNN's specification against published counts, and its tables."""

from __future__ import annotations

import numpy as np
import pytest

from suite.common import layers
from suite.contract import Key
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.tables import tables

REFERENCE = spec.dimensions("reference", "r50-fpn")
MINI = spec.dimensions("mini", "r50-fpn")


def test_parameter_counts_match_publication() -> None:
    parameters, still = spec.parameters(REFERENCE), spec.frozen(REFERENCE)
    assert sum(p.size for p in parameters) == 41_755_286
    assert sum(p.size for p in parameters if p.name not in still) == 41_532_886
    norms = [norm for part in spec.backbone(REFERENCE) for norm in layers.statistics(part)]
    assert 4 * sum(norm.channels for norm in norms) == 106_240  # torchvision keeps four numbers a channel
    assert set(spec.norm_scales(REFERENCE)) == {norm.name for norm in norms}


def test_names_are_distinct_and_mini_is_small() -> None:
    for dims in (REFERENCE, MINI):
        names = [p.name for p in spec.parameters(dims)]
        assert len(set(names)) == len(names)
    assert 500_000 < sum(p.size for p in spec.parameters(MINI)) < 1_000_000


def test_cost_matches_publication() -> None:
    assert spec.image_macs(REFERENCE, (800, 1216), training=False) == pytest.approx(196.8e9, rel=1e-3)
    # Frozen parts cost once, the layers directly after them twice, all others three times.
    once, thrice = (spec.image_macs(REFERENCE, (800, 1216), training=t) for t in (False, True))
    assert 2.5 * once < thrice < 3 * once


def test_window_flop_counts_hundred_steps() -> None:
    key = Key(
        "faster_rcnn", "pytorch", "infer", "offline", "fp32", 4, 1, "mini", "synthetic", "warm", "r50-fpn"
    )
    assert spec.units(key, 1) == (4,) * 110
    assert spec.window_flop(key) == 2 * 100 * 4 * spec.image_macs(MINI, (128, 128), training=False)
    assert spec.window_bytes(key) > 100 * 4 * 3 * 128 * 128


def test_unknown_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="r50-fpn"):
        spec.dimensions("mini", "r101")


def test_rate_warms_up_and_drops() -> None:
    hyper = spec.hyperparameters("reference", "r50-fpn")
    assert spec.recipe_rate(hyper, 0) == pytest.approx(2e-5)
    assert spec.recipe_rate(hyper, 1000) == 0.02
    assert spec.recipe_rate(hyper, 16 * 7392) == pytest.approx(2e-3)
    assert spec.recipe_rate(hyper, 22 * 7392) == pytest.approx(2e-4)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((480, 640), (800, 1067)),
        ((427, 640), (800, 1199)),
        ((640, 480), (1067, 800)),
        ((300, 1000), (400, 1333)),
    ],
)
def test_images_are_resized_as_published(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert spec.resized(REFERENCE, *size) == expected


def test_any_resized_image_fits_a_shape() -> None:
    for height, width in ((480, 640), (1, 1000), (1000, 1), (375, 500), (800, 1333), (801, 1333), (640, 640)):
        fit = spec.resized(REFERENCE, height, width)
        shape = REFERENCE.shapes[0 if width >= height else -1]
        assert all(0 < side <= room for side, room in zip(fit, shape, strict=True))


def test_anchors_match_publication() -> None:
    made = tables(REFERENCE, 800, 1344)
    assert made.anchors[:3].tolist() == [[-23, -11, 23, 11], [-16, -16, 16, 16], [-11, -23, 11, 23]]
    assert made.anchors[3].tolist() == [4 - 23, -11, 4 + 23, 11]
    assert made.levels == (0, 201_600, 252_000, 264_600, 267_750, 268_569)
    last = made.anchors[made.levels[4] :]
    assert len(last) == 3 * 13 * 21
    assert last[1].tolist() == [-256, -256, 256, 256]


def test_sampling_order_is_permutation_twice() -> None:
    made = tables(MINI, 128, 128)
    half = len(made.order) // 2
    assert half == made.levels[-1] + MINI.objects
    assert np.array_equal(made.order[:half], made.order[half:])
    assert sorted(made.order[:half]) == list(range(1, half + 1))
    assert half + half < 1 << 23  # float32 holds the numbers exactly


def test_tables_are_made_once_for_a_shape() -> None:
    shape = MINI.shapes[0]
    assert tables(MINI, *shape) is tables(MINI, *shape)  # every batch of real data needs them
