"""Compare three or more results: the fastest first, and every other one with it.

Pure functions of the data that :func:`suite.compare.comparable.comparable` returns for each result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from string import ascii_uppercase
from typing import Any

from suite.compare.comparable import GROUPS, MEANING
from suite.compare.compare import (
    FASTER,
    INDISTINGUISHABLE,
    ONE_REPEAT,
    SLOWER,
    UNKNOWN,
    ComparableResult,
    NotComparable,
    interleaved,
    ratio_of,
    require_comparable,
    result_identity,
)
from suite.compare.ratio import CONFIDENCE, Ratio

FORMAT = "suite-ranking/1"
FASTEST = "fastest"
MOST = len(ascii_uppercase)
_DECIDING = ("throughput", "time_to_quality_s")


@dataclass(frozen=True, slots=True)
class RankedResult:
    """One result; ``speed`` is relative to the fastest, None for the fastest itself and without a spread."""

    label: str  # A, B, C … in the order in which the results were given
    result: ComparableResult
    value: float | None
    unit: str
    speed: Ratio | None
    conclusion: str  # fastest, slower, indistinguishable or unknown
    reason: str = ""  # why there is no ratio


@dataclass(frozen=True, slots=True)
class VaryingFact:
    """One fact that differs between the results, with its value in each, in the order of the ranking."""

    group: str
    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Results by one metric, the fastest first; ``confidence`` is that of each single interval."""

    metric: str
    rows: tuple[RankedResult, ...]
    varying: tuple[VaryingFact, ...]
    confidence: float

    @property
    def meaning(self) -> tuple[VaryingFact, ...]:
        """The differences in what is measured, which also affect the ratios."""
        return tuple(fact for fact in self.varying if fact.group == MEANING)

    def as_dict(self) -> dict[str, Any]:
        """The ranking as JSON values."""
        return {
            "format": FORMAT,
            "metric": self.metric,
            "confidence_of_all": CONFIDENCE,
            "confidence_of_each": self.confidence,
            "like_with_like": not self.meaning,
            "results": [
                {
                    "label": row.label,
                    **result_identity(row.result),
                    "value": row.value,
                    "unit": row.unit,
                    "speed": None if row.speed is None else asdict(row.speed),
                    "conclusion": row.conclusion,
                    "reason": row.reason,
                }
                for row in self.rows
            ],
            "differences": [asdict(fact) for fact in self.varying],
        }


def rank(results: Sequence[ComparableResult]) -> Ranking:
    """Rank 2 to 26 results, the fastest first. NotComparable if two of them cannot be compared.

    The same data choose the fastest and compare it, so the intervals hold together for every two results
    (Bonferroni): of N results, each has a confidence of 1 - 0.05 / (N (N - 1) / 2).
    """
    labels = ascii_uppercase[: len(results)]
    for label, other in zip(labels[1:], results[1:], strict=True):
        try:
            require_comparable(results[0], other)
        except NotComparable as error:
            raise NotComparable(f"A and {label} are {error}") from error
    metric = next(name for name in _DECIDING if name in results[0]["metrics"])
    by_speed = sorted(
        zip(labels, results, strict=True), key=lambda pair: _speed(pair[1], metric), reverse=True
    )
    confidence = 1 - (1 - CONFIDENCE) / comb(len(results), 2)
    rows = tuple(_row(label, one, by_speed[0][1], metric, confidence) for label, one in by_speed)
    return Ranking(metric, rows, _varying([one for _, one in by_speed]), confidence)


def _speed(result: ComparableResult, metric: str) -> float:
    """What orders the results: larger is faster, and without a value last."""
    value = result["metrics"][metric]["value"]
    if not value:
        return 0.0
    return float(value) if metric == "throughput" else 1 / float(value)


def _row(
    label: str, result: ComparableResult, fastest: ComparableResult, metric: str, confidence: float
) -> RankedResult:
    ours, theirs = result["metrics"][metric], fastest["metrics"][metric]
    value, unit = ours["value"], ours["unit"]
    if value is None:
        return RankedResult(label, result, None, unit, None, UNKNOWN, ours["reason"])
    if result is fastest:
        return RankedResult(label, result, value, unit, None, FASTEST)
    if min(len(ours["repeats"]), len(theirs["repeats"])) < 2:
        return RankedResult(label, result, value, unit, None, UNKNOWN, ONE_REPEAT)
    ratio = ratio_of(metric, theirs["repeats"], ours["repeats"], interleaved(fastest, result), confidence)
    speed = ratio if metric == "throughput" else ratio.inverse()
    conclusion = (FASTER if speed.value > 1 else SLOWER) if speed.different else INDISTINGUISHABLE
    return RankedResult(label, result, value, unit, speed, conclusion)


def _varying(results: Sequence[ComparableResult]) -> tuple[VaryingFact, ...]:
    """Every fact that differs, in the order of the groups."""
    varying = []
    for group in GROUPS:
        facts = [result["facts"].get(group, {}) for result in results]
        for name in dict.fromkeys(name for one in facts for name in one):
            values = tuple(one.get(name) for one in facts)
            if any(value != values[0] for value in values):
                varying.append(VaryingFact(group, name, values))
    return tuple(varying)
