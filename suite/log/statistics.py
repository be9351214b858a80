"""The statistics of a run: every published number is computed here from windows and timestamps.

With w_r the window of repeat r in integer nanoseconds and u_r its units of work: m_r = w_r / u_r, T = sum w
/ sum u, throughput X = 1 / T. Rates are never averaged. The interval is Student's t over the repeats,
not over the pooled steps, because steps of one process are not independent (Kalibera and Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from operator import mul, sub
from typing import TypeVar

Number = TypeVar("Number", int, float)
# t(0.975, n - 1 degrees of freedom) / sqrt(n) for n repeats: half of the 95 % interval of a mean, in standard
# deviations. A table, because equal digits on every machine matter more than a tenth of a percent.
INTERVALS = {
    2: 8.985, 3: 2.484, 4: 1.591, 5: 1.242, 6: 1.049, 7: 0.925, 8: 0.836, 9: 0.769, 10: 0.715, 11: 0.672,
    12: 0.635, 13: 0.604, 14: 0.577, 15: 0.554, 16: 0.533, 17: 0.514, 18: 0.497, 19: 0.482, 20: 0.468,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput and spread: ``per_second`` in units per second; ``cv`` and ``half_width`` are relative."""

    window_ns: int
    units: int
    per_second: float
    means_ns: tuple[float, ...]  # m_r: nanoseconds per unit, one a repeat
    cv: float | None  # None with fewer than two repeats
    half_width: float | None  # of the 95 % interval; None with one repeat, or more than 20


def throughput(windows_ns: Sequence[int], units: Sequence[int]) -> Throughput:
    """Throughput and spread of repeats with these windows (ns) and units, all positive integers.

    Integer sums and correctly rounded divisions give equal floats on every machine, so that claims can be
    compared exactly. Raises ValueError on empty, unequal or non-positive input.
    """
    if not windows_ns or len(windows_ns) != len(units):
        raise ValueError(
            f"expected one number of units for each window, found {len(units)} for {len(windows_ns)} windows"
        )
    if min(windows_ns) <= 0 or min(units) <= 0:
        raise ValueError("expected positive windows and units")
    window, work = sum(windows_ns), sum(units)
    means = tuple(w / u for w, u in zip(windows_ns, units, strict=True))
    cv = variation(means) if len(means) > 1 else None
    half = None if cv is None or len(means) not in INTERVALS else INTERVALS[len(means)] * cv
    return Throughput(window, work, work * 1_000_000_000 / window, means, cv, half)


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation with ddof = 1 of at least two positive numbers."""
    count = len(values)
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / (count - 1)) / mean


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Low end, mean and high end of the 95 % interval of the mean of 2 to 20 repeats, by Student's t."""
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / (len(values) - 1))
    half = INTERVALS[len(values)] * spread
    return mean - half, mean, mean + half


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope of y over x, of at least two points (x, y) of different x."""
    x_mean = math.fsum([x for x, _ in points]) / len(points)
    square = math.fsum([(x - x_mean) ** 2 for x, _ in points])
    return math.fsum([(x - x_mean) * y for x, y in points]) / square


def total(values: Sequence[float]) -> float:
    """The correctly rounded sum; infinite or nan where it or a value is beyond the largest float."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # ValueError: infinities of both signs
        return sum(values)


def durations(timestamps_ns: Sequence[int]) -> tuple[int, ...]:
    """Step durations from the timestamps at the steps' ends, counted from the start of their phase."""
    return tuple(end - before for end, before in zip(timestamps_ns, (0, *timestamps_ns), strict=False))


def percentile(values: Sequence[Number], percent: int) -> Number:
    """The nearest-rank percentile: the smallest value with at least ``percent`` % at or below it.

    It is one of the values: an integer stays one. Raises ValueError on no values or percent outside 1..100.
    """
    if not values or not 1 <= percent <= 100:
        raise ValueError(
            f"expected at least one value and percent in 1..100, found {len(values)} and {percent}"
        )
    rank = -(-len(values) * percent // 100)
    return sorted(values)[rank - 1]


def median(values: Sequence[float]) -> float:
    """The median of at least one number."""
    ordered = sorted(values)  # statistics.median of the standard library is slower
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def noise(curves: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each value of equally long curves less the median of the curves at the same index."""
    medians = [median(column) for column in zip(*curves, strict=True)]
    return [list(map(sub, curve, medians)) for curve in curves]


def differences(values: Sequence[float], order: int) -> list[float]:
    """The differences between neighbouring values, taken ``order`` times: ``order`` values fewer."""
    found = list(values)
    for _ in range(order):
        found = [after - before for before, after in pairwise(found)]
    return found


def similarity(first: Sequence[float], second: Sequence[float]) -> float:
    """The least of three rank correlations of equally long curves: values, first and second differences.

    A copy has all three. Curves that change slowly, such as those of a GPU that grows warm, are similar by
    chance: their values most, their second differences least.
    """
    return min(rank_correlation(differences(first, order), differences(second, order)) for order in range(3))


def outliers(values: Sequence[float]) -> int:
    """How many values lie over 10 scaled median absolute deviations from the median (hyperfine's rule)."""
    middle = median(values)
    deviations = [abs(value - middle) for value in values]
    spread = 1.4826 * median(deviations)
    return sum([deviation > 10 * spread for deviation in deviations]) if spread > 0 else 0


def drift(values: Sequence[float]) -> float:
    """Median of the first 30 values over that of the last 30, less one: positive when steps get faster."""
    return median(values[:30]) / median(values[-30:]) - 1.0


def relative(durations_ns: Sequence[Sequence[int]], work: Sequence[Sequence[int]]) -> list[list[float]]:
    """Durations of several repeats, each divided by the median of all steps with the same amount of work.

    Where batches differ in length, raw durations depend more on the order of batches than on the machine.
    """
    by_amount: dict[int, list[int]] = {}
    for curve, amounts in zip(durations_ns, work, strict=True):
        for duration, amount in zip(curve, amounts, strict=True):
            by_amount.setdefault(amount, []).append(duration)
    medians = {amount: median(durations) or 1.0 for amount, durations in by_amount.items()}
    return [
        [duration / medians[amount] for duration, amount in zip(curve, amounts, strict=True)]
        for curve, amounts in zip(durations_ns, work, strict=True)
    ]


def expected_repeats(values: Sequence[int], tick: int) -> float:
    """The expected number of equal pairs of ``values``, for normal noise and a clock of resolution ``tick``.

    Two normal draws of deviation s fall on the same tick q with probability q / (2 sqrt(pi) s). The deviation
    is estimated from the quartiles. Returns 0 where it is 0.
    """
    ordered = sorted(values)
    quarter = len(ordered) // 4
    deviation = (ordered[-quarter - 1] - ordered[quarter]) / 1.349
    pairs = len(values) * (len(values) - 1) / 2
    return pairs * tick / (2 * math.sqrt(math.pi) * deviation) if deviation > 0 else 0.0


def collision(values: Sequence[int]) -> float:
    """The probability that two values drawn at random are equal: a measure of the timer's coarseness."""
    return sum(count * count for count in Counter(values).values()) / len(values) ** 2


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's correlation of two equally long sequences; ties share their mean rank, 0 without spread."""
    ((_, _, correlation),) = correlations([centred_ranks(first), centred_ranks(second)])
    return correlation


def correlations(curves: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, float]]:
    """(index, index, correlation) of each pair of equally long curves of integers whose sums are 0.

    The correlation is 0 where one of the two has no spread.
    """
    squares = [sum(map(mul, curve, curve)) for curve in curves]
    for first, second in combinations(range(len(curves)), 2):
        spread = squares[first] * squares[second]
        common = sum(map(mul, curves[first], curves[second]))
        yield first, second, common / math.sqrt(spread) if spread > 0 else 0.0


def centred_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value less twice the mean rank: integers although ties share their mean rank."""
    ordered, most = sorted(values), len(values) - 1
    twice = dict(zip(ordered, range(-most, most + 1, 2), strict=True))
    if len(twice) < len(ordered):  # of ties, the dictionary has the last rank
        first = dict(zip(reversed(ordered), range(most, -most - 1, -2), strict=True))
        twice = {value: (first[value] + last) // 2 for value, last in twice.items()}
    return [twice[value] for value in values]
