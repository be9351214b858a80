"""The ratio of two sets of repeats with its confidence interval, as pure functions.

Every repeat is a fresh process, so the repeats are the samples, not the steps within them (Kalibera and
Jones, ISMM 2013). Logarithms turn the ratio into a difference; the two sides may have different variances, so
the test is Welch's (Biometrika 34, 1947), with Satterthwaite's degrees of freedom (Biometrics
Bulletin 2, 1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
POWER = 0.80
HOLDS, FAILS, UNDECIDABLE = "holds", "fails", "undecidable"
_TAIL = (1 + CONFIDENCE) / 2
_MAX_LOG = 700.0  # beyond it exp() overflows


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A. ``detectable`` is the relative difference that is detected with a power of 80 %."""

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


def welch(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The ratio of ``b`` to ``a``, each the positive values of at least two repeats.

    ln(ratio) = mean ln b - mean ln a, with SE² = s²(ln a) / n_a + s²(ln b) / n_b; the interval is
    exp(ln(ratio) ± t(0.975, df) SE). Raises ValueError on fewer values or ones that are not positive.
    """
    (mean_a, square_a), (mean_b, square_b) = _mean_and_square(a), _mean_and_square(b)
    square = square_a + square_b
    freedom = float(len(a) + len(b) - 2)
    if square > 0:
        freedom = square**2 / (square_a**2 / (len(a) - 1) + square_b**2 / (len(b) - 1))
    return _ratio(mean_b - mean_a, math.sqrt(square), freedom)


def paired(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The ratio of ``b`` to ``a`` over pairs that were measured together, at least two, all positive.

    The logarithms of the pairs' ratios are one sample: what slows both sides of a pair cancels (Student's
    paired t). Raises ValueError for unequal lengths, fewer pairs or values that are not positive.
    """
    if len(a) != len(b):
        raise ValueError(f"expected pairs, found {len(a)} and {len(b)} values")
    mean, square = _mean_and_square([_positive(y) / _positive(x) for x, y in zip(a, b, strict=True)])
    return _ratio(mean, math.sqrt(square), len(a) - 1)


def prediction_ratio(earlier: Sequence[float], new: float) -> Ratio:
    """The ratio of one ``new`` run to the mean of at least two ``earlier`` runs, all positive.

    The spread of the earlier runs gives SE² = s² (1 + 1 / n) of one more run, with n - 1 degrees
    of freedom: the prediction interval of one future observation (Hahn and Meeker, "Statistical Intervals",
    1991).
    """
    mean, square = _mean_and_square(earlier)
    error = math.sqrt(square * len(earlier) * (1 + 1 / len(earlier)))
    return _ratio(math.log(_positive(new)) - mean, error, len(earlier) - 1)


def _ratio(middle: float, error: float, freedom: float) -> Ratio:
    from scipy.special import stdtrit

    half_width = float(stdtrit(freedom, _TAIL)) * error
    low, value, high = (math.exp(_clamped(end)) for end in (middle - half_width, middle, middle + half_width))
    return Ratio(value, low, high, freedom, detectable(error, freedom))


def detectable(error: float, freedom: float) -> float:
    """The relative difference that a two-sided test at 5 % detects with a power of 80 %.

    exp(d SE) - 1, where a t distribution with ``freedom`` degrees of freedom and non-centrality d lies above
    the central one's 97.5 % point with a probability of 80 % (Cohen, "Statistical Power Analysis", 1988,
    chapter 2). With five repeats per side of equal spread it is about 2.1 times their CV.
    """
    from scipy.special import nctdtrinc, stdtrit

    away = float(nctdtrinc(freedom, 1 - POWER, float(stdtrit(freedom, _TAIL))))
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


def _mean_and_square(values: Sequence[float]) -> tuple[float, float]:
    """The mean of the logarithms, and the square of that mean's standard error."""
    if len(values) < 2:
        raise ValueError("spread needs at least two values")
    logs = [math.log(_positive(value)) for value in values]
    mean = math.fsum(logs) / len(logs)
    return mean, math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1) / len(logs)


def _positive(value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError("times and rates are positive")
    return value
