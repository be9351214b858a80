"""STAT: spread between repeats, drift and outliers within them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from suite.checker.context import Context, Fault, rule
from suite.contract import BENCHMARK, MEASURED_STEPS
from suite.log import statistics
from suite.log.model import Repeat


def _cv(c: Context) -> float:
    result = c.record.throughput
    return 0.0 if result is None or result.cv is None else result.cv


def _loads(c: Context) -> str:
    """The number of other busy processes in each repeat, as text."""
    loads = [repeat.start["load"] for repeat in c.repeats if repeat.start is not None]
    shown = ["unknown" if load is None else f"{load['other_processes']}" for load in loads]
    return "other busy processes by repeat: " + ", ".join(shown)


@rule("STAT-001", mode="throughput")
def spread_rejects(c: Context) -> Iterator[Fault]:
    """In closed the CV over repeats is at most 5 %."""
    limit = c.rules.limit("cv_reject")
    if c.division == "closed" and _cv(c) > limit:
        yield Fault("windows of the repeats", f"CV at most {limit:.1%}", f"{_cv(c):.2%}; {_loads(c)}")


@rule("STAT-002", mode="throughput")
def spread_flags(c: Context) -> Iterator[Fault]:
    """The CV over repeats is at most 3 %."""
    limit = c.rules.limit("cv_flag")
    if _cv(c) > limit:
        yield Fault("windows of the repeats", f"CV at most {limit:.1%}", f"{_cv(c):.2%}; {_loads(c)}")


@rule("STAT-003", mode="throughput")
def interval_narrow(c: Context) -> Iterator[Fault]:
    """The 95 % interval is narrower than 5 % on either side."""
    limit = c.rules.limit("half_width")
    result = c.record.throughput
    if result is not None and result.half_width is not None and result.half_width > limit:
        yield Fault("windows of the repeats", f"half-width at most {limit:.1%}", f"{result.half_width:.2%}")


@rule("STAT-004", mode="throughput")
def drift_flags(c: Context) -> Iterator[Fault]:
    """Fewer than two repeats drift by more than 3 % in the same direction."""
    limit = c.rules.limit("drift_flag")
    drifts = [drift for _, drift in c.drifts]
    for sign in (1, -1):
        found = [drift for drift in drifts if sign * drift > limit]
        if len(found) >= 2:
            shown = ", ".join(f"{drift:+.1%}" for drift in found)
            yield Fault(
                "step_end_ns",
                f"first 30 and last 30 steps within {limit:.0%}",
                f"{shown} in {len(found)} repeats",
            )


@rule("STAT-005", mode="throughput")
def drift_rejects(c: Context) -> Iterator[Fault]:
    """No repeat drifts by more than 10 %."""
    limit = c.rules.limit("drift_reject")
    for location, drift in c.drifts:
        if abs(drift) > limit:
            yield Fault(location, f"first 30 and last 30 steps within {limit:.0%}", f"{drift:+.1%}")


@rule("STAT-006", mode="throughput")
def few_outliers(c: Context) -> Iterator[Fault]:
    """At most 5 of 100 steps are outliers. Outliers are counted but not removed."""
    for location, values in c.relative_durations:
        found, most = statistics.outliers(values), c.rules.limit("outliers") * len(values) / MEASURED_STEPS
        if found > most:
            yield Fault(location, f"at most {most:.0f} outliers of {len(values)}", found)


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
