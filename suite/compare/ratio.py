"""The ratio of two sets of repeats with its confidence interval, as pure functions.

Every repeat is a fresh process, so the repeats are the samples, not the steps within them (Kalibera and
Jones, ISMM 2013). The ratio is that of the arithmetic means: of times, that is the ratio of the published
throughputs, because every repeat does the same work. Its logarithm is a difference, whose standard error
follows from those of the means, each relative to its mean (the delta method). The two sides may have
different variances, so the test is Welch's (Biometrika 34, 1947), with Satterthwaite's degrees of freedom
(Biometrics Bulletin 2, 1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
POWER = 0.80
HOLDS, FAILS, UNDECIDABLE = "holds", "fails", "undecidable"
_MAX_LOG = 700.0  # beyond it exp() overflows


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A. ``detectable`` is the relative difference that is detected with a power of 80 %.

    ``freedom`` 0: of one pair of values, whose interval has no bounds.
    """

    value: float
    low: float  # of the 95 % interval
    high: float
    freedom: float
    detectable: float

    @property
    def different(self) -> bool:
        """Whether the interval excludes 1."""
        return not self.low <= 1.0 <= self.high

    def inverse(self) -> Ratio:
        """A over B."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low, self.freedom, self.detectable)


def welch(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """The ratio of the mean of ``b`` to that of ``a``, each the positive values of at least two repeats.

    With r the relative standard error of a mean, SE² = r²(a) + r²(b), and the interval is
    mean(b) / mean(a) · exp(± t SE). Raises ValueError on fewer values or ones that are not positive.
    """
    square_a, square_b = (_mean_and_square(_relative(side))[1] for side in (a, b))
    square = square_a + square_b
    freedom = float(len(a) + len(b) - 2)
    if square > 0:
        freedom = square**2 / (square_a**2 / (len(a) - 1) + square_b**2 / (len(b) - 1))
    return _ratio(_log_of_means(a, b), math.sqrt(square), freedom, confidence)


def paired(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """The ratio of the mean of ``b`` to that of ``a``, whose values were measured together one by one.

    The differences b_r - a_r, each value relative to the mean of its side, are one sample: what slows both
    repeats r cancels (Student's paired t). Raises ValueError for unequal lengths, no values, or values that
    are not positive.
    """
    if len(a) != len(b):
        raise ValueError(f"expected paired values, found {len(a)} and {len(b)} values")
    differences = [y - x for x, y in zip(_relative(a), _relative(b), strict=True)]
    if len(differences) == 1:
        return Ratio(b[0] / a[0], 0.0, math.inf, 0.0, math.inf)
    _, square = _mean_and_square(differences)
    return _ratio(_log_of_means(a, b), math.sqrt(square), len(a) - 1, confidence)


def prediction_ratio(earlier: Sequence[float], new: float) -> Ratio:
    """The ratio of one ``new`` run to the mean of at least two ``earlier`` runs, all positive.

    The spread of the earlier runs gives SE² = s² (1 + 1 / n) of one more run, with n - 1 degrees
    of freedom: the prediction interval of one future observation (Hahn and Meeker, "Statistical Intervals",
    1991).
    """
    mean, square = _mean_and_square([math.log(_positive(value)) for value in earlier])
    error = math.sqrt(square * len(earlier) * (1 + 1 / len(earlier)))
    return _ratio(math.log(_positive(new)) - mean, error, len(earlier) - 1)


def _ratio(middle: float, error: float, freedom: float, confidence: float = CONFIDENCE) -> Ratio:
    from scipy.special import stdtrit

    half_width = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    low, value, high = (math.exp(_clamped(end)) for end in (middle - half_width, middle, middle + half_width))
    return Ratio(value, low, high, freedom, detectable(error, freedom, confidence))


def detectable(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """The relative difference that a two-sided test, by default at 5 %, detects with a power of 80 %.

    exp(d SE) - 1, where a t distribution with ``freedom`` degrees of freedom and non-centrality d lies above
    the central one's 97.5 % point with a probability of 80 % (Cohen, "Statistical Power Analysis", 1988,
    chapter 2). With five repeats per side of equal spread it is about 2.1 times their CV.
    """
    from scipy.special import nctdtrinc, stdtrit

    away = float(nctdtrinc(freedom, 1 - POWER, float(stdtrit(freedom, (1 + confidence) / 2))))
    return math.expm1(_clamped(away * error))


def _clamped(log: float) -> float:
    """The logarithm, limited so that exp() of it and the inverse are finite even for a forged spread."""
    return max(-_MAX_LOG, min(_MAX_LOG, log))


def gate(speed: Ratio, loss: float) -> str:
    """Whether B is slower than A by more than ``loss`` (0.02 is 2 %), by the ratio of their speeds.

    ``fails`` or ``holds`` only where the whole interval lies on one side of that loss.
    """
    if speed.high < 1 - loss:
        return FAILS
    return HOLDS if speed.low >= 1 - loss else UNDECIDABLE


def _log_of_means(a: Sequence[float], b: Sequence[float]) -> float:
    return math.log(math.fsum(b) / len(b)) - math.log(math.fsum(a) / len(a))


def _relative(values: Sequence[float]) -> list[float]:
    """The values, which must be positive, divided by their mean."""
    mean = math.fsum(map(_positive, values)) / max(len(values), 1)
    return [value / mean for value in values]


def _mean_and_square(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the square of its standard error."""
    if len(values) < 2:
        raise ValueError("spread needs at least two values")
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def _positive(value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError("times and rates are positive")
    return value
