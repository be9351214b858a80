"""Two sets of repeats as a ratio with its interval: the statistics of a comparison, as pure functions.

Every repeat is a fresh process, so that the repeats, and not the steps in them, are what is compared
(Kalibera and Jones, ISMM 2013). Their logarithms make a ratio a difference; the two sides may spread
differently, so the test is Welch's (Biometrika 34, 1947), with Satterthwaite's degrees of freedom (Biometrics
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
_FURTHEST = 700.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A. ``detectable`` is the relative difference that would be seen with a power of 80 %."""

    value: float
    low: float  # of the 95 % interval
    high: float
    freedom: float
    detectable: float

    @property
    def different(self) -> bool:
        """Whether the interval leaves 1 out."""
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


def predicted(earlier: Sequence[float], one: float) -> Ratio:
    """The ratio of ``one`` new run to the mean of ``earlier`` runs, at least two of them, all positive.

    The earlier runs tell how far runs lie apart, the new one is one draw more: SE² = s² (1 + 1 / n) with
    n - 1 degrees of freedom, the prediction interval of one future observation (Hahn and Meeker, "Statistical
    Intervals", 1991).
    """
    mean, square = _mean_and_square(earlier)
    error = math.sqrt(square * len(earlier) * (1 + 1 / len(earlier)))
    return _ratio(math.log(_positive(one)) - mean, error, len(earlier) - 1)


def _ratio(middle: float, error: float, freedom: float) -> Ratio:
    from scipy.special import stdtrit

    half = float(stdtrit(freedom, _TAIL)) * error
    low, value, high = (math.exp(_within(end)) for end in (middle - half, middle, middle + half))
    return Ratio(value, low, high, freedom, detectable(error, freedom))


def detectable(error: float, freedom: float) -> float:
    """The relative difference that a two-sided test at 5 % sees with a power of 80 %.

    exp(d SE) - 1, where a t distribution with ``freedom`` degrees of freedom and non-centrality d lies above
    the central one's 97.5 % point with a probability of 80 % (Cohen, "Statistical Power Analysis", 1988,
    chapter 2). With five repeats a side of equal spread that is about 2.1 times their CV.
    """
    from scipy.special import nctdtrinc, stdtrit

    away = float(nctdtrinc(freedom, 1 - POWER, float(stdtrit(freedom, _TAIL))))
    return math.expm1(_within(away * error))


def _within(log: float) -> float:
    """A logarithm whose number and inverse both exist: what a forged spread would make of it is neither."""
    return max(-_FURTHEST, min(_FURTHEST, log))


def gate(speed: Ratio, loss: float) -> str:
    """Whether B is slower than A by more than ``loss`` (0.02 is 2 %), by the ratio of their speeds.

    ``fails`` and ``holds`` only where the whole interval lies on one side of that loss.
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
