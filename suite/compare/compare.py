"""Two results side by side: what differs between them, how far apart they are, and the conclusion.

Everything here is a pure function of what :func:`suite.compare.comparable.comparable` returned of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suite.compare import ratio as statistics
from suite.compare.comparable import GROUPS, MEANING
from suite.compare.ratio import UNDECIDABLE, Ratio

FORMAT = "suite-compare/1"
FASTER, SLOWER, MORE, LESS = "faster", "slower", "more", "less"
INDISTINGUISHABLE, UNKNOWN = "indistinguishable", "unknown"
ONE_REPEAT = "a single repeat has no spread, so that no interval follows"
_LABELS = {
    "throughput": "throughput",
    "time_to_quality_s": "time to quality",
    "latency_p50_ms": "latency p50",
    "latency_p90_ms": "latency p90",
    "latency_p99_ms": "latency p99",
    "energy": "energy",
}
# (the word for a ratio above 1, the word for one below): whether more is better depends on what it is.
_WORDS = {"throughput": (FASTER, SLOWER), "energy": (MORE, LESS)}
_USUAL = (SLOWER, FASTER)  # of times

ComparableResult = Mapping[str, Any]


class NotComparable(ValueError):
    """The two results measure different things; the message names the fields."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that is not the same in both; None where a log has it as null or not at all."""

    group: str
    name: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of both. ``ratio`` is B over A; without one, ``reason`` says why."""

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: Ratio | None
    word: str
    reason: str = ""

    @property
    def label(self) -> str:
        """The metric in words."""
        return _LABELS[self.name]


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether B may be called slower than A by more than ``loss``: holds, fails or undecidable, and why."""

    loss: float
    outcome: str
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that there is to say of two comparable results."""

    a: ComparableResult
    b: ComparableResult
    differences: tuple[Difference, ...]
    rows: tuple[MetricComparison, ...]
    gate: Gate | None = None

    @property
    def meaning(self) -> tuple[Difference, ...]:
        """The differences in what is measured: the ratio holds those too."""
        return tuple(one for one in self.differences if one.group == MEANING)

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "format": FORMAT,
            **{side: result_of(result) for side, result in (("a", self.a), ("b", self.b))},
            "differences": [asdict(one) for one in self.differences],
            "like_with_like": not self.meaning,
            "metrics": {row.name: row_values(row) for row in self.rows},
            "gate": None if self.gate is None else asdict(self.gate),
        }


def compare(a: ComparableResult, b: ComparableResult, loss: float | None = None) -> Comparison:
    """Compare two results; ``loss`` (0.02 is 2 %) asks for the gate. NotComparable where unlike."""
    refuse_unlike(a["same"], b["same"])
    rows = tuple(_rows(a["metrics"], b["metrics"]))
    asked = None if loss is None else gate(rows[0].name, rows[0].ratio, loss, rows[0].reason)
    return Comparison(a, b, differences(a, b), rows, asked)


def refuse_unlike(a: Mapping[str, str], b: Mapping[str, str]) -> None:
    """NotComparable unless workload, phase, mode and unit are the same."""
    unlike = [f"{name}: {a[name]} and {b[name]}" for name in a if a[name] != b.get(name)]
    if unlike:
        raise NotComparable("not comparable: they differ in " + "; ".join(unlike))


def differences(a: ComparableResult, b: ComparableResult) -> tuple[Difference, ...]:
    """Every fact that differs, in the order of the groups: what changes the meaning comes first."""
    found = []
    for group in GROUPS:
        ours, theirs = a["facts"].get(group, {}), b["facts"].get(group, {})
        names = [*ours, *(name for name in theirs if name not in ours)]
        found += [
            Difference(group, name, ours.get(name), theirs.get(name))
            for name in names
            if ours.get(name) != theirs.get(name)
        ]
    return tuple(found)


def _rows(a: Mapping[str, ComparableResult], b: Mapping[str, ComparableResult]) -> Iterator[MetricComparison]:
    """The metrics that either has, in a fixed order: the first decides."""
    for name in _LABELS:
        ours, theirs = a.get(name), b.get(name)
        if ours is None and theirs is None:
            continue
        yield _row(name, ours or _absent(name), theirs or _absent(name))


def _absent(name: str) -> ComparableResult:
    reason = "not a single_stream run" if name.startswith("latency") else "not measured"
    return {"value": None, "unit": "", "reason": reason, "repeats": []}


def _row(name: str, a: ComparableResult, b: ComparableResult) -> MetricComparison:
    lacking = [
        f"{side}: {result['reason']}" for side, result in (("A", a), ("B", b)) if result["value"] is None
    ]
    reason = "; ".join(lacking)
    if not lacking and min(len(a["repeats"]), len(b["repeats"])) < 2:
        reason = ONE_REPEAT
    ratio = None if reason else statistics.welch(a["repeats"], b["repeats"])
    return MetricComparison(
        name, a["unit"] or b["unit"], a["value"], b["value"], ratio, word(name, ratio), reason
    )


def word(name: str, ratio: Ratio | None) -> str:
    """What B is beside A, by the ratio of this metric; indistinguishable where its interval holds 1."""
    if ratio is None:
        return UNKNOWN
    if not ratio.different:
        return INDISTINGUISHABLE
    above, below = _WORDS.get(name, _USUAL)
    return above if ratio.value > 1 else below


def gate(name: str, ratio: Ratio | None, loss: float, reason: str) -> Gate:
    """The gate on the metric that decides: throughput, or in a quality run the time to quality."""
    if ratio is None:
        return Gate(loss, UNDECIDABLE, reason)
    speed = ratio if name == "throughput" else ratio.inverse()
    outcome = statistics.gate(speed, loss)
    why = f"its speed is {100 * speed.low:.4g} % to {100 * speed.high:.4g} % of what it is held against"
    if outcome == UNDECIDABLE:
        why += f", and the bar is at {100 * (1 - loss):.4g} %; detectable from {percent(ratio.detectable)}"
    return Gate(loss, outcome, why)


def percent(part: float) -> str:
    """A relative difference for people."""
    return f"{100 * part:.3g} %" if abs(part) < 10 else f"{1 + part:.3g} times"


def result_of(result: ComparableResult) -> dict[str, Any]:
    """Which result it is, as JSON values."""
    return {name: result[name] for name in ("run_id", "sha256", "when", "title", "flags")}


def row_values(row: MetricComparison) -> dict[str, Any]:
    """One metric as JSON values; the detectable difference is relative."""
    return {
        "unit": row.unit,
        "a": row.a,
        "b": row.b,
        "ratio": None if row.ratio is None else asdict(row.ratio),
        "word": row.word,
        "reason": row.reason,
    }


def names_of(found: Sequence[Difference], most: int = 6) -> str:
    """The names of differences in one line."""
    names = [one.name for one in found[:most]]
    return ", ".join(names) + (f" and {len(found) - most} more" if len(found) > most else "")
