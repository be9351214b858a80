"""Compares a baseline with earlier ones of its machine and with its kind, and its GPUs with each other.

A series is **slow** or **fast** if its figure differs from the median of the others by more than the
threshold, max(2 %, k·σ̂); differences and σ̂ are of logarithms. σ̂ is the robust deviation of the others
(:mod:`suite.compare.baseline_deviation`), at least the test–retest deviation: that of the same machine
measured again. k depends on the numbers of figures and of series, so that a healthy machine is called slow or
fast with a probability of at most 1 % per comparison. Only series with the same method are compared.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.compare.baseline_deviation import factor, robust_deviation, sibling_factor
from suite.metrics.baseline import Baseline, Series

MINIMUM = {"self": 5, "cohort": 10, "siblings": 2}  # figures to compare with; of siblings, devices
FLOOR = 0.02  # smaller differences are never called slow or fast
OK, SLOW, FAST, UNKNOWN = "ok", "slow", "fast", "unknown"
_GPU = re.compile(r"gpu[0-9]+\.(?!peer_)")
# Of the median of five normal numbers, in terms of the deviation of one.
_MEDIAN_OF_FIVE = 0.536


@dataclass(frozen=True, slots=True)
class SeriesVerdict:
    """The verdict on one series. ``ratio`` is its figure over the median of the ``count`` others.

    ``sigma`` and ``threshold`` are fractions. All three are None, with a ``reason``, if it is unknown.
    """

    name: str
    state: str  # ok | slow | fast | unknown
    count: int
    ratio: float | None = None
    sigma: float | None = None
    threshold: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BaselineVerdict:
    """The verdicts of one comparison: with ``self``, ``cohort`` or ``siblings``."""

    against: str
    series: tuple[SeriesVerdict, ...]

    @property
    def state(self) -> str:
        """Slow if any series is slow, else fast if any is fast, else ok if any is ok, else unknown."""
        states = {one.state for one in self.series}
        return next((state for state in (SLOW, FAST, OK) if state in states), UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Group:
    """Logarithms of the figures to compare with, and the test–retest deviation of one."""

    figures: tuple[float, ...]
    retest: float


def verdicts(candidate: Baseline, known: Sequence[Baseline]) -> tuple[BaselineVerdict, ...]:
    """The verdicts on ``candidate``; ``known`` are baselines of any machines. Without GPUs no siblings."""
    known = [one for one in known if one.digest != candidate.digest and one.cohort == candidate.cohort]
    found = [
        _verdict("self", candidate, {name: _of_machine(candidate, known, name) for name in candidate.series}),
        _verdict(
            "cohort", candidate, {name: _of_cohort(candidate, known, name) for name in candidate.series}
        ),
    ]
    if siblings := _siblings(candidate):
        found.append(siblings)
    return tuple(found)


def medians(known: Sequence[Baseline]) -> dict[tuple[str, str, str], dict[str, float]]:
    """By name, unit and method of a series: the median (units per second) of each identified machine.

    They are what a verdict against the cohort compares with, for many candidates at once.
    """
    logs: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for one in known:
        if one.machine is not None:
            for name, series in one.series.items():
                of_machine = logs.setdefault((name, series.unit, series.method), {})
                of_machine.setdefault(one.machine, []).append(series.log_rate)
    return {
        key: {machine: math.exp(statistics.median(some)) for machine, some in of_machine.items()}
        for key, of_machine in logs.items()
    }


def _verdict(against: str, candidate: Baseline, groups: Mapping[str, _Group]) -> BaselineVerdict:
    least = MINIMUM[against]
    tests = sum(len(group.figures) >= least for group in groups.values())
    found = []
    for name, group in groups.items():
        count = len(group.figures)
        if count < least:
            things = (
                "earlier baselines of this machine" if against == "self" else "other machines of this kind"
            )
            reason = f"{least} {things} are needed, {count} found"
            if candidate.machine is None and against == "self":
                reason = "earlier baselines cannot be recognised: /etc/machine-id is missing or empty"
            found.append(SeriesVerdict(name, UNKNOWN, count, reason=reason))
            continue
        sigma = max(float(robust_deviation(group.figures)), group.retest)
        difference = candidate.series[name].log_rate - statistics.median(group.figures)
        found.append(decided(name, difference, count, sigma, factor(count, tests)))
    return BaselineVerdict(against, tuple(found))


def decided(name: str, difference: float, count: int, sigma: float, k: float) -> SeriesVerdict:
    """The verdict for a ``difference`` of logarithms and the threshold max(2 %, k·σ̂)."""
    threshold = max(FLOOR, k * sigma)
    state = OK if abs(difference) <= threshold else FAST if difference > 0 else SLOW
    return SeriesVerdict(name, state, count, math.exp(difference), sigma, threshold)


def _same(one: Series | None, other: Series) -> bool:
    return one is not None and (one.unit, one.method) == (other.unit, other.method)


def _of_machine(candidate: Baseline, known: Sequence[Baseline], name: str) -> _Group:
    """Earlier baselines of the candidate's machine. Their windows bound the test–retest deviation."""
    found = [
        one.series[name]
        for one in known
        if one.machine is not None
        and one.machine == candidate.machine
        and one.when < candidate.when
        and _same(one.series.get(name), candidate.series[name])
    ]
    return _Group(tuple(one.log_rate for one in found), _of_windows(found))


def _of_cohort(candidate: Baseline, known: Sequence[Baseline], name: str) -> _Group:
    """The median of each other machine of the kind; machines without an identity are left out."""
    by_machine: dict[str, list[Series]] = {}
    for one in known:
        if one.machine not in (None, candidate.machine) and _same(
            one.series.get(name), candidate.series[name]
        ):
            by_machine.setdefault(str(one.machine), []).append(one.series[name])
    figures, squares, freedom = [], 0.0, 0
    for machine in by_machine.values():
        logs = [one.log_rate for one in machine]
        figures.append(statistics.median(logs))
        mean = statistics.fmean(logs)
        squares += sum((one - mean) ** 2 for one in logs)
        freedom += len(logs) - 1
    repeated = math.sqrt(squares / freedom) if freedom else 0.0
    windows = _of_windows([one for machine in by_machine.values() for one in machine])
    return _Group(tuple(figures), max(repeated, windows))


def _of_windows(series: Sequence[Series]) -> float:
    """The deviation of a median over windows, of the typical one of ``series``."""
    return _MEDIAN_OF_FIVE * statistics.median([one.deviation for one in series]) if series else 0.0


def _siblings(candidate: Baseline) -> BaselineVerdict | None:
    """Each GPU compared with the median of the others on its host; None for fewer than two GPUs."""
    groups: dict[str, dict[str, Series]] = {}
    for name, one in candidate.series.items():
        if _GPU.match(name):
            groups.setdefault(name.partition(".")[2], {})[name] = one
    groups = {
        title: members
        for title, members in groups.items()
        if len(members) >= MINIMUM["siblings"] and len({one.method for one in members.values()}) == 1
    }
    tests = sum(map(len, groups.values()))
    found = []
    for members in groups.values():
        k = sibling_factor(len(members), tests)
        sigma = math.sqrt(statistics.fmean(one.deviation**2 for one in members.values()))
        for name, one in members.items():
            others = [other.log_rate for title, other in members.items() if title != name]
            difference = one.log_rate - statistics.median(others)
            found.append(decided(name, difference, len(others), sigma, k))
    return BaselineVerdict("siblings", tuple(found)) if found else None
