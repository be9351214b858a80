"""STAT: spread between repeats, drift and outliers within them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from suite.checker.context import Context, Fault, rule
from suite.contract import BENCHMARK, MEASURED_STEPS
from suite.log import statistics
from suite.log.model import Repeat
from suite.log.units import count


def _cv(c: Context) -> float:
    result = c.record.throughput
    return 0.0 if result is None or result.cv is None else result.cv


def _drifts(c: Context) -> list[tuple[str, float]]:
    """(location, drift) of the relative durations."""
    return [(location, statistics.drift(values)) for location, values in c.relative_durations]


def _loads(c: Context) -> str:
    """The number of other busy processes in each repeat, as text."""
    loads = [repeat.start["load"] for repeat in c.repeats if repeat.start is not None]
    shown = ["unknown" if load is None else f"{load['other_processes']}" for load in loads]
    return "other busy processes by repeat: " + ", ".join(shown)


@rule("STAT-001", mode="throughput")
def steady_in_closed(c: Context) -> Iterator[Fault]:
    """In closed the CV over repeats is at most 5 %, and no repeat drifts by more than 10 %."""
    if c.division != "closed":
        return
    limit = c.rules.limit("cv_reject")
    if _cv(c) > limit:
        yield Fault("windows of the repeats", f"CV at most {limit:.1%}", f"{_cv(c):.2%}; {_loads(c)}")
    limit = c.rules.limit("drift_reject")
    for location, drift in _drifts(c):
        if abs(drift) > limit:
            yield Fault(location, f"first 30 and last 30 steps within {limit:.0%}", f"{drift:+.1%}")


@rule("STAT-002", mode="throughput")
def spread_flags(c: Context) -> Iterator[Fault]:
    """The CV over repeats is at most 3 %."""
    limit = c.rules.limit("cv_flag")
    if _cv(c) > limit:
        yield Fault("windows of the repeats", f"CV at most {limit:.1%}", f"{_cv(c):.2%}; {_loads(c)}")


@rule("STAT-004", mode="throughput")
def drift_flags(c: Context) -> Iterator[Fault]:
    """Fewer than two repeats drift by more than 6 % in the same direction, and none by more than 10 %.

    In short windows of honest runs the clock of a GPU that grows warm falls by up to 6 %.
    """
    limit, most = c.rules.limit("drift_flag"), c.rules.limit("drift_reject")
    drifts = [drift for _, drift in _drifts(c)]
    for sign in (1, -1):
        found = [drift for drift in drifts if sign * drift > limit]
        if len(found) >= 2 or any(sign * drift > most for drift in found):
            shown = ", ".join(f"{drift:+.1%}" for drift in found)
            yield Fault(
                "step_end_ns",
                f"first 30 and last 30 steps within {limit:.0%}",
                f"{shown} in {count(len(found), 'repeat')}",
            )


@rule("STAT-006", mode="throughput")
def few_outliers(c: Context) -> Iterator[Fault]:
    """At most 5 of 100 steps are outliers, or they cost little time. They are counted but not removed.

    On a device whose other steps are equal to a thousandth, honest windows have up to 18 outliers, which cost
    less than 3 % of the window. A few that cost much hide how long the other steps took together: percentiles
    of step times say nothing then. At mini scale one interruption by the host is as long as many steps.
    """
    most, share = c.rules.limit("outliers"), c.rules.limit("outlier_share")
    ceiling = c.rules.limit("outlier_cost") if c.reference else math.inf
    for location, values in c.relative_durations:
        found, middle = statistics.outliers(values), statistics.median(values)
        cost = abs(sum(values) / (middle * len(values)) - 1) if middle > 0 else 0.0
        allowed = most * len(values) / MEASURED_STEPS
        if found > allowed and cost > share:
            wanted = f"at most {allowed:.0f} outliers of {len(values)}, or {share:.0%} of the window"
            yield Fault(location, wanted, f"{found} outliers, {cost:.0%} of the window")
        elif cost > ceiling:
            yield Fault(location, f"mean and median of a step at most {ceiling:.0%} apart", f"{cost:.0%}")


@rule("STAT-007", mode="throughput", kind=BENCHMARK)
def durations_vary(c: Context) -> Iterator[Fault]:
    """Durations vary: of 100 by host timestamps at least 95 differ, less the repeats expected by chance.

    The rule does not apply to conversions, whose parallel shards end shortly after each other.
    """
    for location, curve in _by_hundreds(c.durations):
        distinct = len(set(curve))
        chance = 2 * statistics.expected_repeats(curve, int(c.rules.limit("tick_ns")))
        wanted = c.rules.limit("distinct") - chance
        if c.record.timestamp_kind == "host_completion" and distinct < wanted:
            yield Fault(location, f"at least {wanted:.0f} distinct durations", distinct)
        elif statistics.variation(curve) < c.rules.limit("smooth_cv"):
            yield Fault(location, f"CV of steps at least {c.rules.limit('smooth_cv'):.0e}", "less")


def _by_hundreds(
    durations: Iterable[tuple[str, Repeat, int, tuple[int, ...]]],
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(location, durations) of each hundred measured steps: the limits are those of a usual window."""
    for location, _, _, curve in durations:
        for at in range(0, len(curve), MEASURED_STEPS):
            yield location, curve[at : at + MEASURED_STEPS]
