"""The ratio, its interval, the gate and the change points, compared with simulated runs of known truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from suite.compare.change_points import MIN_SEGMENT, change_points
from suite.compare.ratio import (
    FAILS,
    HOLDS,
    UNDECIDABLE,
    Ratio,
    detectable,
    gate,
    paired,
    prediction_ratio,
    welch,
)

PAIRS = 2000
SEED = 20261122


def runs(chance: Any, ratio: float, cv: float, count: int = PAIRS) -> Any:
    """Means of five repeats of ``count`` runs, spread by ``cv`` about ``ratio``; one row a run."""
    return np.exp(chance.normal(math.log(ratio), cv, (count, 5)))


def pairs(ratio: float, cv_a: float, cv_b: float, count: int = PAIRS) -> list[Ratio]:
    chance = np.random.default_rng(SEED)
    a, b = runs(chance, 1.0, cv_a, count), runs(chance, ratio, cv_b, count)
    return [welch(list(one), list(other)) for one, other in zip(a, b, strict=True)]


@pytest.mark.parametrize(("cv_a", "cv_b"), [(0.01, 0.01), (0.05, 0.05), (0.005, 0.03), (0.03, 0.01)])
@pytest.mark.parametrize("truth", [1.0, 0.97, 1.5])
def test_interval_contains_true_ratio_in_93_to_97_percent(truth: float, cv_a: float, cv_b: float) -> None:
    held = sum(found.low <= truth <= found.high for found in pairs(truth, cv_a, cv_b))
    assert 0.93 <= held / PAIRS <= 0.97


@pytest.mark.parametrize("cv", [0.002, 0.01, 0.1])
def test_equal_configurations_differ_significantly_in_at_most_1_of_20_pairs(cv: float) -> None:
    found = pairs(1.0, cv, cv, 10_000)
    assert sum(one.different for one in found) / len(found) <= 0.05


def test_disturbed_repeats_do_not_raise_the_false_positive_rate() -> None:
    chance = np.random.default_rng(SEED)

    def disturbed() -> Any:
        return runs(chance, 1.0, 0.01) * np.where(chance.random((PAIRS, 5)) < 0.1, 1.2, 1.0)

    different = [welch(list(a), list(b)).different for a, b in zip(disturbed(), disturbed(), strict=True)]
    assert sum(different) / PAIRS <= 0.05


@pytest.mark.parametrize("cv", [0.005, 0.02])
def test_detectable_difference_has_power_of_80_percent(cv: float) -> None:
    detectable = float(np.mean([found.detectable for found in pairs(1.0, cv, cv)]))
    assert detectable == pytest.approx(2.1 * cv, rel=0.05)
    detected = sum(found.different for found in pairs(1 + detectable, cv, cv)) / PAIRS
    assert 0.75 <= detected <= 0.85


def test_gate_error_rate_at_the_limit_is_at_most_1_in_40() -> None:
    outcomes = [gate(found, 0.02) for found in pairs(0.98, 0.01, 0.01, 4000)]
    for wrong in (FAILS, HOLDS):
        assert outcomes.count(wrong) / len(outcomes) <= 0.035
    assert outcomes.count(UNDECIDABLE) / len(outcomes) >= 0.93


@pytest.mark.parametrize(("truth", "outcome"), [(1.0, HOLDS), (0.9, FAILS), (1.2, HOLDS)])
def test_gate_decides_far_from_the_limit(truth: float, outcome: str) -> None:
    outcomes = [gate(found, 0.05) for found in pairs(truth, 0.01, 0.01, 500)]
    assert outcomes.count(outcome) / len(outcomes) > 0.97


def test_welch_matches_hand_calculation() -> None:
    a, b = [1.0, 1.1, 0.9, 1.05, 0.95], [2.0, 2.2, 1.8, 2.1, 1.9]
    found = welch(a, b)
    assert found.value == pytest.approx(2.0)
    assert found.freedom == pytest.approx(8.0)
    error = math.sqrt(2 * np.var(a, ddof=1) / 5)  # relative to the mean, b spreads as a does
    assert found.high == pytest.approx(2.0 * math.exp(2.306004 * error), rel=1e-6)
    assert found.low * found.high == pytest.approx(4.0)
    back = welch(b, a)
    assert (back.low, back.high) == pytest.approx((found.inverse().low, found.inverse().high))


def test_welch_is_independent_of_order_and_unit() -> None:
    a, b = [1.0, 1.1, 0.9, 1.05, 0.95], [1.2, 1.0, 1.3, 1.1, 1.15]
    found = welch(a, b)
    again = welch([1e9 * value for value in reversed(a)], [1e9 * value for value in b[2:] + b[:2]])
    assert (again.value, again.low, again.high) == pytest.approx((found.value, found.low, found.high))


def test_ratio_is_that_of_the_means_where_a_repeat_is_disturbed() -> None:
    a, b = [10.0, 10.0, 10.0, 10.0, 10.0], [8.0, 8.0, 8.0, 8.0, 30.0]
    for found in (welch(a, b), paired(a, b)):
        assert found.value == pytest.approx(sum(b) / sum(a))
        assert found.low < 1 < found.high


@pytest.mark.parametrize("truth", [1.0, 0.97, 1.5])
def test_paired_interval_contains_true_ratio_whatever_slows_both_repeats(truth: float) -> None:
    chance = np.random.default_rng(SEED)
    shared = runs(chance, 1.0, 0.2)  # how the machine drifts
    a, b = runs(chance, 1.0, 0.01) * shared, runs(chance, truth, 0.01) * shared
    found = [paired(list(one), list(other)) for one, other in zip(a, b, strict=True)]
    assert 0.93 <= sum(one.low <= truth <= one.high for one in found) / PAIRS <= 0.97
    assert np.median([one.detectable for one in found]) < 0.04


def test_zero_spread_gives_zero_width_interval() -> None:
    found = welch([2.0] * 5, [3.0] * 5)
    assert (found.low, found.value, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert found.different
    assert found.detectable == 0
    assert not welch([2.0] * 5, [2.0] * 5).different


@pytest.mark.parametrize("values", [[1.0], [], [1.0, 0.0], [1.0, -1.0], [1.0, math.inf], [1.0, math.nan]])
def test_welch_refuses_invalid_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"at least two|positive"):
        welch(values, [1.0, 2.0])


def test_huge_spread_gives_finite_ratio() -> None:
    found = welch([1e-300, 1e300], [1e300, 1e-300])
    assert not found.different
    assert math.isfinite(found.detectable)


def test_detectable_matches_published_tables() -> None:
    # Cohen (1988), chapter 2: two samples of 17 see d = 1.00 with a power of 80 % at a two-sided 5 %
    assert math.log1p(detectable(math.sqrt(2 / 17), 32)) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("earlier", [3, 10])
def test_prediction_interval_contains_new_run_in_93_to_97_percent(earlier: int) -> None:
    chance = np.random.default_rng(SEED)
    history, new = np.exp(chance.normal(0, 0.02, (PAIRS, earlier))), np.exp(chance.normal(0, 0.02, PAIRS))
    found = [prediction_ratio(list(level), float(one)) for level, one in zip(history, new, strict=True)]
    assert 0.93 <= sum(not one.different for one in found) / PAIRS <= 0.97


def normal(chance: Any, count: int) -> Any:
    return chance.normal(0, 0.01, count)


def heavy(chance: Any, count: int) -> Any:
    return chance.standard_t(2, count)


def disturbed(chance: Any, count: int) -> Any:
    return normal(chance, count) + np.where(chance.random(count) < 0.05, 0.2, 0.0)


@pytest.mark.parametrize("noise", [normal, heavy, disturbed])
@pytest.mark.parametrize("count", [6, 12, 40])
def test_history_without_change_rarely_shows_one(noise: Callable[[Any, int], Any], count: int) -> None:
    chance = np.random.default_rng(SEED + count)
    alarms = sum(bool(change_points(noise(chance, count))) for _ in range(300))
    assert alarms / 300 <= 0.05


def test_change_point_is_found_at_its_index() -> None:
    chance = np.random.default_rng(SEED)
    hits = []
    for _ in range(50):
        values = normal(chance, 40) + np.where(np.arange(40) >= 15, 0.03, 0.0)
        hits.append(any(abs(at - 15) <= 1 for at in change_points(values)))
    assert sum(hits) >= 48


def test_two_change_points_are_found_at_first_value_of_new_level() -> None:
    values = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99] * 2
    series = [*values, *(value + 1 for value in values), *(value - 1 for value in values)]
    assert change_points(series) == [12, 24]


def test_outlier_and_short_history_have_no_change_point() -> None:
    assert change_points([1.0, 1.01, 0.99, 5.0, 1.0, 1.01, 0.99, 1.0, 1.01, 0.99]) == []
    assert change_points([1.0] * MIN_SEGMENT + [9.0] * (MIN_SEGMENT - 1)) == []
    assert change_points([]) == []
    assert change_points([1.0] * 30) == []
