"""From interleaved pairs of measurements to one ratio and a verdict.

Each round runs both sides in fresh processes, one directly after the other; their ratio is one observation,
so that a drifting machine favours neither side. The result is the median of the ratios. The limit is the
one-sided 95 % upper end of their mean (logarithms, Student's t): the suite's side is slower only if the limit
is below 1.

Wall time decides, unless other processes used more than a tenth of the processors in any window: then units
per second of processor time decide.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MET, WITHIN_NOISE, SLOWER = "met", "within noise", "SLOWER"
BUSY_SHARE = 0.1
MIN_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of one process: units of work, and seconds of three clocks."""

    units: int
    wall_s: float
    cpu_s: float
    others_s: float | None  # processor time of all other processes; None where the kernel does not report it

    def rate(self, clock: str) -> float:
        """Units per second of ``clock``: wall or cpu."""
        return self.units / (self.wall_s if clock == "wall" else self.cpu_s)

    def busy(self, processors: int) -> bool:
        """Whether other processes used more than a tenth of the machine's ``processors``."""
        return self.others_s is not None and self.others_s > BUSY_SHARE * processors * self.wall_s


@dataclass(frozen=True, slots=True)
class PeerRatio:
    """Ours over theirs: the median of the rounds, their range, and the upper limit."""

    median: float
    least: float
    most: float
    limit: float  # one-sided 95 % upper end

    @property
    def verdict(self) -> str:
        """``met`` for a median of at least 1, ``SLOWER`` for a limit below 1, else ``within noise``."""
        if self.median >= 1:
            return MET
        return SLOWER if self.limit < 1 else WITHIN_NOISE


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> PeerRatio:
    """The ratio of rates by round; ValueError for fewer than three rounds, too few for an interval."""
    if len(ours) < MIN_ROUNDS:
        raise ValueError(f"rounds: expected at least {MIN_ROUNDS}, found {len(ours)}; give ROUNDS=3 or more")
    from scipy.stats import t

    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    logs = [math.log(value) for value in ratios]
    spread = statistics.stdev(logs) / math.sqrt(len(logs))
    limit = math.exp(statistics.mean(logs) + float(t.ppf(0.95, len(logs) - 1)) * spread)
    return PeerRatio(statistics.median(ratios), min(ratios), max(ratios), limit)


def deciding_clock(readings: Sequence[Measurement], processors: int) -> str:
    """``wall``, or ``cpu`` if other processes used the machine in any of the windows."""
    return "cpu" if any(reading.busy(processors) for reading in readings) else "wall"
