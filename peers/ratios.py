"""From interleaved pairs of measurements to one ratio and a verdict.

Each round has both sides in fresh processes right after each other; their ratio is one observation, so that a
machine that speeds up or slows down favours neither. The figure is the median of the ratios. The limit is the
one-sided 95 % upper end of their mean (logarithms, Student's t): only where even that lies below 1 is the
suite's side shown to be slower.

Wall time decides. Where other processes took more than a tenth of the processors in any window, wall time
says more about them than about the two sides, and units per second of processor time decide instead.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MET, EVEN, SLOWER = "met", "within noise", "SLOWER"
BUSY_SHARE = 0.1
LEAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """What one process measured: units of work, and seconds of three clocks."""

    units: int
    wall_s: float
    cpu_s: float
    others_s: float | None  # of processors, used by everybody else; null where the kernel does not say

    def rate(self, clock: str) -> float:
        """Units per second of ``clock``: wall or cpu."""
        return self.units / (self.wall_s if clock == "wall" else self.cpu_s)

    def busy(self, processors: int) -> bool:
        """Whether others took more than a tenth of the machine's ``processors`` meanwhile."""
        return self.others_s is not None and self.others_s > BUSY_SHARE * processors * self.wall_s


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over theirs: the median of the rounds, their range, and the upper limit."""

    median: float
    least: float
    most: float
    limit: float  # one-sided 95 % upper end

    @property
    def verdict(self) -> str:
        """``met`` from 1 on, ``SLOWER`` where the limit lies below 1, between them ``within noise``."""
        if self.median >= 1:
            return MET
        return SLOWER if self.limit < 1 else EVEN


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Of rates, round by round; ValueError for fewer than three rounds, too few for an interval."""
    if len(ours) < LEAST_ROUNDS:
        raise ValueError(
            f"rounds: expected at least {LEAST_ROUNDS}, found {len(ours)}; give ROUNDS=3 or more"
        )
    from scipy.stats import t

    found = [a / b for a, b in zip(ours, theirs, strict=True)]
    logs = [math.log(value) for value in found]
    spread = statistics.stdev(logs) / math.sqrt(len(logs))
    limit = math.exp(statistics.mean(logs) + float(t.ppf(0.95, len(logs) - 1)) * spread)
    return Ratio(statistics.median(found), min(found), max(found), limit)


def deciding_clock(readings: Sequence[Reading], processors: int) -> str:
    """``wall``, or ``cpu`` where the machine was busy with others in any of the windows."""
    return "cpu" if any(reading.busy(processors) for reading in readings) else "wall"
