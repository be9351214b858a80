"""Compares times of a workload under another name, and with more work, with the submitted time.

Code that recognises the name or the seed of the benchmark is slower under other ones. An honest time is a
fixed part plus a part per unit of work: the two slopes between three sizes are equal. Precomputed results
take no longer for more work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.audit.items import DIFFERENT, INSIDE, ComparedItem, incomparable
from suite.contract import MEASURED_STEPS

# Relative tolerance of a time; the spread of the machine applies where it is larger. Processor time excludes
# waiting, but other processes share caches and execution units.
TOLERANCE, ON_A_PROCESSOR = 0.05, 0.15
UNDECIDED = 0.25  # a larger spread could hide a forgery
LEAST_SHARE = 0.25  # of the time of the widest step, for the second half of its work; 0.5 without overhead
LEAST_COST = 0.5  # of the time by the slope, for the submitted size; small sizes fit into caches
LONG_STEP_NS = 20_000_000  # from here on, most of a step is work and not overhead
MOST_WIDER = 64


@dataclass(frozen=True, slots=True)
class Timed:
    """One variant: its analytic work in the window (FLOP), and the time (ns) of each of its repeats."""

    title: str
    flop: int
    times_ns: tuple[int, ...]

    @property
    def best_ns(self) -> int:
        """The fastest repeat, because other processes only add time."""
        return min(self.times_ns)

    @property
    def spread(self) -> float:
        """The relative difference of the two fastest repeats; 0 for a single repeat."""
        ordered = sorted(self.times_ns)
        return ordered[1] / ordered[0] - 1 if len(ordered) > 1 else 0.0


def factor(time_ns: int) -> int:
    """The first widening, a power of two that makes steps long enough to be mostly work."""
    step = time_ns / MEASURED_STEPS
    wider = 1
    while wider < MOST_WIDER and step * wider < LONG_STEP_NS:
        wider *= 2
    return wider


def judge(times: Sequence[Timed], least: float) -> list[ComparedItem]:
    """The items for the variants as submitted, renamed, and widened to three sizes in ascending order.

    ``least`` is the least tolerance: TOLERANCE, or ON_A_PROCESSOR.
    """
    plain, renamed, *wide = times
    return [
        name_item(plain, renamed, least),
        slope_item(wide, least),
        growth_item(wide, least),
        size_item(renamed, wide, least),
    ]


def _tolerance(least: float, *times: Timed) -> float:
    """The tolerance of a comparison of ``times``: their largest spread, at least ``least``."""
    return max(least, *(one.spread for one in times))


def _undecided(name: str, tolerance: float) -> ComparedItem:
    reason = f"the two fastest repeats of a variant are {100 * tolerance:.0f} % apart"
    return incomparable(name, f"{reason}: stop other processes, or set REPEATS=5")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _seconds(time_ns: float) -> str:
    return f"{time_ns / 1e9:.4g} s"


def name_item(plain: Timed, renamed: Timed, least: float) -> ComparedItem:
    """The same work under another name and seed takes no longer."""
    name, tolerance = "name and seed", _tolerance(least, plain, renamed)
    ratio = renamed.best_ns / plain.best_ns
    if tolerance > UNDECIDED and ratio < 2 + tolerance:
        return _undecided(name, tolerance)
    outcome = INSIDE if ratio <= 1 + tolerance else DIFFERENT
    because = f"{ratio:.2f} times as long under another name"
    return ComparedItem(
        name, outcome, _seconds(plain.best_ns), _seconds(renamed.best_ns), _percent(tolerance), because
    )


def _slope(one: Timed, other: Timed) -> float:
    return (other.best_ns - one.best_ns) / (other.flop - one.flop)


def slope_item(wide: Sequence[Timed], least: float) -> ComparedItem:
    """The widest run matches the linear extrapolation of the other two."""
    first, second, third = wide
    name, tolerance = "work, one slope", _tolerance(least, *wide)
    if tolerance > UNDECIDED:
        return _undecided(name, tolerance)
    extrapolated = second.best_ns + _slope(first, second) * (third.flop - second.flop)
    deviation = third.best_ns / extrapolated - 1 if extrapolated > 0 else math.inf
    # The extrapolation magnifies an error of the first two times up to three times.
    outcome = INSIDE if abs(deviation) <= 3 * tolerance else DIFFERENT
    allowed = f"three times {_percent(tolerance)}"
    return ComparedItem(
        name, outcome, _seconds(extrapolated), _seconds(third.best_ns), allowed, f"{100 * deviation:+.1f} %"
    )


def growth_item(wide: Sequence[Timed], least: float) -> ComparedItem:
    """Twice the work takes longer: at least a quarter of the widest step is its second half."""
    _, second, third = wide
    name, tolerance = "work, marginal cost", _tolerance(least, second, third)
    share = (third.best_ns - second.best_ns) / third.best_ns
    if tolerance > UNDECIDED:
        return _undecided(name, tolerance)
    outcome = INSIDE if share >= LEAST_SHARE - tolerance / 2 else DIFFERENT
    work, time = third.flop / second.flop, third.best_ns / second.best_ns
    because = f"{work:.3g} times the work in {time:.3g} times the time"
    expected = f"a share of {LEAST_SHARE} or more"
    return ComparedItem(name, outcome, expected, f"{share:.3f}", _percent(tolerance / 2), because)


def size_item(renamed: Timed, wide: Sequence[Timed], least: float) -> ComparedItem:
    """The submitted size takes about as long as its work takes at other sizes."""
    first, _, third = wide
    name, tolerance = "size as submitted", _tolerance(least, renamed, first, third)
    if tolerance > UNDECIDED:
        return _undecided(name, tolerance)
    cost = max(0.0, _slope(first, third)) * renamed.flop
    outcome = INSIDE if renamed.best_ns >= LEAST_COST * cost * (1 - tolerance) else DIFFERENT
    because = "the time of as much work in the wider runs"
    expected = f"{LEAST_COST:g} of {_seconds(cost)} or more"
    return ComparedItem(name, outcome, expected, _seconds(renamed.best_ns), _percent(tolerance), because)
