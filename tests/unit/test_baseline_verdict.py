"""The verdict on a baseline: what it is compared with, its thresholds, and how often it is a false alarm."""

from __future__ import annotations

import numpy as np
import pytest

from suite.compare.baseline_deviation import factor, robust_deviation, sibling_factor
from suite.compare.baseline_factors import FACTORS, TESTS
from suite.compare.baseline_verdict import BaselineVerdict, decided, medians, verdicts
from suite.metrics.baseline import Baseline
from tests.fixtures.baselines import baseline

RATES = {"cpu.copy": 100.0, "cpu.triad": 50.0}


def noisy(number: int, machine: str, spread: float = 0.01) -> Baseline:
    random = np.random.default_rng(number)
    return baseline(
        number,
        {name: rate * float(np.exp(random.normal(0, spread))) for name, rate in RATES.items()},
        machine,
    )


def against(found: tuple[BaselineVerdict, ...], name: str) -> BaselineVerdict:
    return next(one for one in found if one.against == name)


@pytest.mark.parametrize(("count", "state"), [(4, "unknown"), (5, "ok")])
def test_self_needs_five_earlier_baselines(count: int, state: str) -> None:
    known = [noisy(number, "m") for number in range(count)]
    assert against(verdicts(noisy(99, "m"), known), "self").state == state


@pytest.mark.parametrize(("machines", "state"), [(9, "unknown"), (10, "ok")])
def test_a_cohort_needs_ten_other_machines(machines: int, state: str) -> None:
    known = [noisy(10 * machine + again, f"m{machine}") for machine in range(machines) for again in range(3)]
    own = [noisy(900 + number, "m") for number in range(20)]  # the candidate's machine does not count
    assert against(verdicts(noisy(999, "m"), [*known, *own]), "cohort").state == state


def test_a_slow_machine_is_found_in_its_cohort_and_named_with_n_and_sigma() -> None:
    known = [noisy(number, f"m{number}", 0.005) for number in range(20)]
    slow = baseline(99, {"cpu.copy": 85.0, "cpu.triad": 50.0}, "m")
    verdict = against(verdicts(slow, known), "cohort")
    found = {one.name: one for one in verdict.series}
    assert (found["cpu.copy"].state, found["cpu.triad"].state, verdict.state) == ("slow", "ok", "slow")
    assert found["cpu.copy"].count == 20
    assert found["cpu.copy"].ratio == pytest.approx(0.85, rel=0.01)
    assert found["cpu.copy"].sigma is not None
    assert found["cpu.copy"].threshold == pytest.approx(max(0.02, factor(20, 2) * found["cpu.copy"].sigma))


def test_differences_up_to_two_percent_are_ok_even_without_noise() -> None:
    known = [baseline(number, RATES, "m", spread=0.0001) for number in range(8)]
    for rate, state in ((98.5, "ok"), (97.5, "slow"), (101.5, "ok"), (102.5, "fast")):
        found = verdicts(baseline(99, {**RATES, "cpu.copy": rate}, "m"), known)
        assert against(found, "self").state == state, rate


def test_sigma_is_at_least_the_test_retest_deviation() -> None:
    """Ten machines that agree by chance, each of which varies by itself from time to time."""
    factors = enumerate((1.1, 1 / 1.1))
    known = [
        baseline(2 * machine + again, {name: rate * by for name, rate in RATES.items()}, f"m{machine}")
        for again, by in factors
        for machine in range(10)
    ]
    found = against(verdicts(baseline(99, {**RATES, "cpu.copy": 90.0}, "m"), known), "cohort")
    assert found.state == "ok"
    assert found.series[0].sigma == pytest.approx(np.log(1.1) * np.sqrt(2), rel=0.01)


def test_other_methods_later_baselines_and_unnamed_machines_do_not_count() -> None:
    others = [
        *(baseline(number, RATES, "m", method="another torch") for number in range(20)),
        *(baseline(number, RATES, "m") for number in range(100, 120)),
        *(baseline(number, RATES, None) for number in range(20, 40)),
    ]
    found = verdicts(baseline(99, RATES, "m"), others)
    assert {one.count for verdict in found for one in verdict.series} == {0}
    unnamed = against(verdicts(baseline(99, RATES, None), others), "self")
    assert {one.reason for one in unnamed.series} == {
        "earlier baselines cannot be recognised: /etc/machine-id is missing or empty"
    }


def test_one_bad_earlier_baseline_in_five_hides_nothing() -> None:
    known = [noisy(number, "m", 0.001) for number in range(10)]
    known[3] = baseline(3, {name: rate / 2 for name, rate in RATES.items()}, "m")
    slow = baseline(99, {name: rate / 1.5 for name, rate in RATES.items()}, "m")
    assert against(verdicts(slow, known), "self").state == "slow"


@pytest.mark.parametrize("count", [2, 8])
def test_a_slow_gpu_is_found_among_its_siblings(count: int) -> None:
    rates = {f"gpu{at}.copy": 100.0 for at in range(count)}
    assert against(verdicts(baseline(1, rates), []), "siblings").state == "ok"
    rates["gpu1.copy"] = 80.0
    found = {one.name: one for one in against(verdicts(baseline(1, rates), []), "siblings").series}
    assert found["gpu1.copy"].state == "slow"
    # Of two, each is the other's measure; of eight, the others are like the median.
    assert found["gpu0.copy"].state == ("fast" if count == 2 else "ok")


def test_one_gpu_has_no_siblings() -> None:
    rates = {"gpu0.copy": 1.0, "gpu0.peer_gpu1": 2.0, "gpu1.peer_gpu0": 1.0}
    assert [one.against for one in verdicts(baseline(1, rates), [])] == ["self", "cohort"]


@pytest.mark.parametrize(("count", "tests"), [(5, 8), (13, 8), (10, 40), (57, 20)])
def test_10_000_equal_machines_raise_false_alarms_in_at_most_1_2_percent(count: int, tests: int) -> None:
    """Noise of 10 %, so that the floor of 2 % never decides."""
    random = np.random.default_rng([count, tests])
    k, alarms = factor(count, tests), 0
    for _ in range(10_000):
        others, own = random.normal(0, 0.1, (tests, count)), random.normal(0, 0.1, tests)
        apart, sigmas = own - np.median(others, axis=1), robust_deviation(others)
        alarms += any(
            decided("a", difference, count, sigma, k).state != "ok"
            for difference, sigma in zip(apart.tolist(), sigmas.tolist(), strict=True)
        )
    assert 20 <= alarms <= 120


def test_factors_grow_with_tests_and_are_taken_from_the_cautious_side() -> None:
    assert factor(43, 7) == FACTORS[40][TESTS.index(10)]
    for row in FACTORS.values():
        assert list(row) == sorted(row)
    assert sibling_factor(6, 1) == sibling_factor(4, 1)
    with pytest.raises(ValueError, match="at least 5 figures"):
        factor(4, 1)


def test_medians_of_machines_are_what_a_cohort_is_compared_with() -> None:
    known = [noisy(10 * machine + again, f"m{machine}") for machine in range(10) for again in range(3)]
    one = noisy(999, "m10")
    (copy, _) = against(verdicts(one, known), "cohort").series
    others = medians([*known, one])["cpu.copy", "byte", "torch"]
    assert len(others) == 11
    middle = np.median([np.log(rate) for machine, rate in others.items() if machine != "m10"])
    assert copy.ratio == pytest.approx(one.series["cpu.copy"].rate / np.exp(middle))
    assert medians([baseline(1, RATES, None)]) == {}
