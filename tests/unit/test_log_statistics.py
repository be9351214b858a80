"""The statistics of a run, by their properties and against other implementations."""

from __future__ import annotations

import math
import statistics as stdlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.log import statistics
from suite.log.claims import claims_of

QUICK = settings(max_examples=200, deadline=None)
windows = st.lists(st.integers(1, 2**52), min_size=5, max_size=5)
works = st.lists(st.integers(1, 2**40), min_size=5, max_size=5)
sample = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


@QUICK
@given(windows, works)
def test_throughput_is_the_exact_ratio_of_sums(ns: list[int], units: list[int]) -> None:
    found = statistics.throughput(ns, units)
    assert Fraction(found.per_second) == pytest.approx(Fraction(sum(units) * 10**9, sum(ns)), rel=1e-15)
    assert (found.window_ns, found.units) == (sum(ns), sum(units))


@QUICK
@given(windows, works)
def test_spread_equals_that_of_the_standard_library(ns: list[int], units: list[int]) -> None:
    found = statistics.throughput(ns, units)
    exact = [Fraction(w, u) for w, u in zip(ns, units, strict=True)]
    wanted = math.sqrt(stdlib.variance(exact)) / float(stdlib.mean(exact))
    assert found.cv == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert found.half_width == pytest.approx(1.242 * wanted, rel=1e-9, abs=1e-12)


@QUICK
@given(windows, works, st.permutations(range(5)))
def test_statistics_do_not_depend_on_the_order_of_repeats(
    ns: list[int], units: list[int], order: list[int]
) -> None:
    first = statistics.throughput(ns, units)
    second = statistics.throughput([ns[i] for i in order], [units[i] for i in order])
    assert (first.per_second, first.cv) == (second.per_second, second.cv)


@QUICK
@given(st.integers(1, 10**15), st.integers(1, 10**9))
def test_equal_repeats_have_no_spread(ns: int, units: int) -> None:
    found = statistics.throughput([ns] * 5, [units] * 5)
    assert found.cv == pytest.approx(0.0, abs=1e-15)


def test_interval_uses_students_t() -> None:
    from scipy import stats

    for count, found in statistics.INTERVALS.items():
        assert found == pytest.approx(stats.t.ppf(0.975, count - 1) / math.sqrt(count), abs=6e-4)


def test_two_repeats_or_more_have_an_interval() -> None:
    assert statistics.throughput([5], [1]).cv is None
    found = statistics.throughput([5, 6, 7], [1, 1, 1])
    assert found.half_width == pytest.approx(2.484 / 6)


def test_interval_and_slope() -> None:
    low, mean, high = statistics.interval([1.0, 2.0, 3.0])
    assert (low, mean, high) == pytest.approx((2 - 2.484, 2, 2 + 2.484))
    assert statistics.slope([(0, 1.0), (1, 3.0), (3, 7.0)]) == pytest.approx(2.0)


@pytest.mark.parametrize(("ns", "units"), [([], []), ([1], [1, 2]), ([0], [1]), ([1], [0]), ([-1], [1])])
def test_throughput_refuses_empty_or_non_positive_input(ns: list[int], units: list[int]) -> None:
    with pytest.raises(ValueError, match=r"windows|many"):
        statistics.throughput(ns, units)


@QUICK
@given(sample, st.integers(1, 100))
def test_percentiles_are_nearest_ranks(values: list[int], percent: int) -> None:
    found = statistics.percentile(values, percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)
    assert found == np.percentile(values, percent, method="inverted_cdf")


@QUICK
@given(sample)
def test_median_equals_median_of_numpy(values: list[int]) -> None:
    assert statistics.median(values) == pytest.approx(float(np.median(values)))


@QUICK
@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_ranks_are_centred_and_shared_by_ties(values: list[int]) -> None:
    ranks = [
        sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values
    ]  # from 0; ties have their mean
    assert statistics.centred_ranks(values) == [2 * rank - (len(values) - 1) for rank in ranks]


@QUICK
@given(sample)
def test_durations_add_up_to_the_timestamps(values: list[int]) -> None:
    timestamps = list(np.cumsum(values))
    assert list(statistics.durations(timestamps)) == values
    assert sum(statistics.durations(timestamps)) == timestamps[-1]


@QUICK
@given(st.lists(st.integers(10**6, 2 * 10**6), min_size=100, max_size=100))
def test_relative_durations_of_equal_work_have_median_one(values: list[int]) -> None:
    curves = statistics.relative([values, values], [[7] * 100, [7] * 100])
    assert statistics.median(curves[0] + curves[1]) == pytest.approx(1.0)


def test_relative_durations_of_long_batches_have_no_drift() -> None:
    short, long = [100] * 50, [300] * 50
    curves = statistics.relative([short + long, long + short], [[1] * 50 + [3] * 50, [3] * 50 + [1] * 50])
    assert all(statistics.drift(curve) == 0 for curve in curves)
    assert statistics.drift([2.0] * 50 + [1.0] * 50) == pytest.approx(1.0)


def test_outliers_are_counted() -> None:
    assert statistics.outliers([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 50.0]) == 1
    assert statistics.outliers([1.0] * 10) == 0


def test_expected_repeats_match_a_simulation() -> None:
    draws = np.random.default_rng(1)
    counts = []
    for _ in range(200):
        values = [10 * round(value / 10) for value in draws.normal(70_000, 700, 100)]
        counts.append(sum(values[i] == values[j] for i in range(100) for j in range(i)))
    found = statistics.expected_repeats([10 * round(v / 10) for v in draws.normal(70_000, 700, 10_000)], 10)
    assert found * 100 * 99 / (10_000 * 9_999) == pytest.approx(np.mean(counts), rel=0.1)
    assert statistics.expected_repeats([5] * 100, 10) == 0


def test_collision_probability_of_coarse_and_fine_timers() -> None:
    assert statistics.collision([1, 1, 1, 1]) == 1
    assert statistics.collision(list(range(100))) == pytest.approx(0.01)


def test_claims_of_both_modes_have_the_expected_fields() -> None:
    claims, reasons = claims_of("throughput", [10, 20, 30], [1, 1, 1])
    assert float.fromhex(claims["throughput"]) == 3 * 10**9 / 60
    assert set(reasons) == {"claims.time_to_quality_ns"}
    claims, reasons = claims_of("throughput", [10], [1])
    assert claims["cv"] is None
    assert "claims.cv" in reasons
    claims, reasons = claims_of("quality", [10, 10], [None, None], [7, 8])
    assert claims["time_to_quality_ns"] == 7
    assert set(reasons) == {"claims.units", "claims.throughput", "claims.cv"}
    claims, reasons = claims_of("quality", [10, 10], [None, None], [7, None])
    assert claims["time_to_quality_ns"] is None
    assert "claims.time_to_quality_ns" in reasons


def test_total_of_anything_is_a_number() -> None:
    """A hostile log may have losses whose sums over the ranks overflow in both directions."""
    assert statistics.total([1e308, 1e308]) == math.inf
    assert math.isnan(statistics.total([math.inf, -math.inf]))
