"""What times of a workload under another name, and of more of its work, say of the time that was submitted.

A run that recognises the name or the seed is faster with them than without. A time that follows the work is a
fixed part and a part for each unit of work: three sizes make two slopes, which are then one. A result that
was computed before costs nothing more where there is more of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.audit.items import DIFFERENT, INSIDE, ComparedItem, incomparable
from suite.contract import MEASURED_STEPS

# Of a time that should be another; the machine's own spread where that is more. The time that a processor's
# threads had is free of waiting, but shares caches and units with whatever else runs.
TOLERANCE, ON_A_PROCESSOR = 0.05, 0.15
UNDECIDED = 0.25  # a spread over this could hide what is looked for
LEAST_SHARE = 0.25  # of the widest step: what the second half of its work must cost; without overhead 0.5
LEAST_COST = 0.5  # of the slope that the submission's own size must cost: small sizes fit into caches
LONG_STEP_NS = 20_000_000  # from here on a step is mostly its work and not its start
MOST_WIDER = 64


@dataclass(frozen=True, slots=True)
class Timed:
    """One variant: its analytic work in the window (FLOP), and the time (ns) of each of its repeats."""

    title: str
    flop: int
    times_ns: tuple[int, ...]

    @property
    def best_ns(self) -> int:
        """The fastest repeat: what else runs on a machine only ever adds time."""
        return min(self.times_ns)

    @property
    def spread(self) -> float:
        """How far the second fastest repeat is behind the fastest, relatively; 0 of a single one."""
        ordered = sorted(self.times_ns)
        return ordered[1] / ordered[0] - 1 if len(ordered) > 1 else 0.0


def factor(time_ns: int) -> int:
    """By which power of two to widen first, so that steps are long enough to be mostly work."""
    step = time_ns / MEASURED_STEPS
    wider = 1
    while wider < MOST_WIDER and step * wider < LONG_STEP_NS:
        wider *= 2
    return wider


def judge(times: Sequence[Timed], least: float) -> list[ComparedItem]:
    """The items of (as it is, renamed, and three widened ones in ascending order of work).

    ``least`` is the tolerance of a quiet machine: TOLERANCE, or ON_A_PROCESSOR.
    """
    plain, renamed, *wide = times
    return [
        name_item(plain, renamed, least),
        slope_item(wide, least),
        growth_item(wide, least),
        size_item(renamed, wide, least),
    ]


def _room(least: float, *times: Timed) -> float:
    """The tolerance of a comparison of these: theirs, where two repeats of one are further apart."""
    return max(least, *(one.spread for one in times))


def _undecided(name: str, room: float) -> ComparedItem:
    told = f"the two fastest repeats of a variant are {100 * room:.0f} % apart"
    return incomparable(name, f"{told}: free the machine, or give REPEATS=5")


def _percent(room: float) -> str:
    return f"{100 * room:.1f} %"


def _seconds(time_ns: float) -> str:
    return f"{time_ns / 1e9:.4g} s"


def name_item(plain: Timed, renamed: Timed, least: float) -> ComparedItem:
    """Under another name and from another seed the same work takes no longer."""
    name, room = "name and seed", _room(least, plain, renamed)
    ratio = renamed.best_ns / plain.best_ns
    if room > UNDECIDED and ratio < 2 + room:
        return _undecided(name, room)
    outcome = INSIDE if ratio <= 1 + room else DIFFERENT
    because = f"{ratio:.2f} times as long under another name"
    return ComparedItem(
        name, outcome, _seconds(plain.best_ns), _seconds(renamed.best_ns), _percent(room), because
    )


def _slope(one: Timed, other: Timed) -> float:
    return (other.best_ns - one.best_ns) / (other.flop - one.flop)


def slope_item(wide: Sequence[Timed], least: float) -> ComparedItem:
    """The widest run matches the linear extrapolation of the other two."""
    first, second, third = wide
    name, room = "work, one slope", _room(least, *wide)
    if room > UNDECIDED:
        return _undecided(name, room)
    extrapolated = second.best_ns + _slope(first, second) * (third.flop - second.flop)
    off = third.best_ns / extrapolated - 1 if extrapolated > 0 else math.inf
    # An error of either of the first two counts up to three times in the extrapolation.
    outcome = INSIDE if abs(off) <= 3 * room else DIFFERENT
    tolerance = f"three times {_percent(room)}"
    return ComparedItem(
        name, outcome, _seconds(extrapolated), _seconds(third.best_ns), tolerance, f"{100 * off:+.1f} %"
    )


def growth_item(wide: Sequence[Timed], least: float) -> ComparedItem:
    """Twice the work costs more: at least a quarter of the widest step is its second half."""
    _, second, third = wide
    name, room = "work, marginal cost", _room(least, second, third)
    share = (third.best_ns - second.best_ns) / third.best_ns
    if room > UNDECIDED:
        return _undecided(name, room)
    outcome = INSIDE if share >= LEAST_SHARE - room / 2 else DIFFERENT
    work, time = third.flop / second.flop, third.best_ns / second.best_ns
    because = f"{work:.3g} times the work in {time:.3g} times the time"
    expected = f"a share of {LEAST_SHARE} or more"
    return ComparedItem(name, outcome, expected, f"{share:.3f}", _percent(room / 2), because)


def size_item(renamed: Timed, wide: Sequence[Timed], least: float) -> ComparedItem:
    """The submission's own size is not cheaper than its work costs at others."""
    first, _, third = wide
    name, room = "size as submitted", _room(least, renamed, first, third)
    if room > UNDECIDED:
        return _undecided(name, room)
    cost = max(0.0, _slope(first, third)) * renamed.flop
    outcome = INSIDE if renamed.best_ns >= LEAST_COST * cost * (1 - room) else DIFFERENT
    because = "what as much work costs where there is more of it"
    expected = f"{LEAST_COST:g} of {_seconds(cost)} or more"
    return ComparedItem(name, outcome, expected, _seconds(renamed.best_ns), _percent(room), because)
