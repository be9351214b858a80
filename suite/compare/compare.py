"""Compare two results: the facts that differ, the ratio of each metric, and the conclusion.

Pure functions of the data that :func:`suite.compare.comparable.comparable` returns for each result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from suite.compare import ratio as statistics
from suite.compare.comparable import GROUPS, MEANING
from suite.compare.ratio import CONFIDENCE, UNDECIDABLE, Ratio
from suite.log.safe import safe

FORMAT = "suite-compare/1"
FASTER, SLOWER, MORE, LESS = "faster", "slower", "more", "less"
INDISTINGUISHABLE, UNKNOWN = "indistinguishable", "unknown"
ONE_REPEAT = "a single repeat has no spread, so there is no interval"
_LABELS = {
    "throughput": "throughput",
    "time_to_quality_s": "time to quality",
    "latency_p50_ms": "latency p50",
    "latency_p90_ms": "latency p90",
    "latency_p99_ms": "latency p99",
    "energy": "energy",
    "energy_node": "energy with processors and memory",
}
# What must be equal beside workload, phase, mode and unit: a ratio of two models or scenarios has no meaning.
# Other differences in what is measured, such as precision, batch and data, may be the question.
SAME_WORK = ("scale", "variant", "scenario")
# The conclusions for a ratio above 1 and below 1, of metrics other than times.
_CONCLUSIONS = {"throughput": (FASTER, SLOWER), "energy": (MORE, LESS), "energy_node": (MORE, LESS)}
_TIME_CONCLUSIONS = (SLOWER, FASTER)
_MOST_NAMES = 6  # of differences that one line lists

ComparableResult = Mapping[str, Any]


class NotComparable(ValueError):
    """The two results measure different things; the message names the fields."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs; None where the log has null or lacks the fact."""

    group: str
    name: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of both results. ``ratio`` is B over A; without a ratio, ``reason`` states the cause."""

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: Ratio | None
    conclusion: str
    reason: str = ""

    @property
    def label(self) -> str:
        """The metric's name for people."""
        return _LABELS[self.name]

    @property
    def sentence(self) -> str:
        """The conclusion as a sentence."""
        if self.ratio is None:
            return f"{self.label}: not compared ({self.reason})"
        smallest = f"; minimum detectable effect {percent(self.ratio.detectable)}"
        if self.conclusion == INDISTINGUISHABLE:
            return f"{self.label}: A and B are indistinguishable{smallest}"
        verb = "uses" if self.conclusion in (MORE, LESS) else "is"
        return f"{self.label}: B {verb} {difference_text(self.ratio)} {self.conclusion} than A{smallest}"


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether B is slower than A by more than ``loss``. ``outcome``: holds, fails or undecidable."""

    loss: float
    outcome: str
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The differences, metrics and gate of two comparable results; ``paired`` if their repeats are."""

    a: ComparableResult
    b: ComparableResult
    differences: tuple[Difference, ...]
    rows: tuple[MetricComparison, ...]
    gate: Gate | None = None
    paired: bool = False

    @property
    def meaning(self) -> tuple[Difference, ...]:
        """The differences in what is measured, which also affect the ratio."""
        return tuple(one for one in self.differences if one.group == MEANING)

    @property
    def different_settings(self) -> str:
        """The sentence that names what else than the speed differs; empty for equal work."""
        return unlike_sentence("A and B", [one.name for one in self.meaning])

    @property
    def baselines(self) -> dict[str, float]:
        """B over A of each figure of the baselines that both cite, of equal methods; empty if it is one."""
        a, b = self.a.get("baseline"), self.b.get("baseline")
        if a is None or b is None or a["log"] == b["log"]:
            return {}
        ours, theirs = a["figures"], b["figures"]
        return {
            name: theirs[name]["rate"] / ours[name]["rate"]
            for name in ours
            if name in theirs and theirs[name]["method"] == ours[name]["method"]
        }

    def __repr__(self) -> str:
        sides = [f"{side}: {safe(one['run_id'])}" for side, one in (("A", self.a), ("B", self.b))]
        last = [safe(self.different_settings, 400)] if self.meaning else []
        return "\n".join([*sides, *(safe(row.sentence, 400) for row in self.rows), *last])

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "format": FORMAT,
            **{side: result_identity(result) for side, result in (("a", self.a), ("b", self.b))},
            "differences": [asdict(one) for one in self.differences],
            "like_with_like": not self.meaning,
            "paired": self.paired,
            "metrics": {row.name: metric_values(row) for row in self.rows},
            "baselines": self.baselines,
            "gate": None if self.gate is None else asdict(self.gate),
        }


def compare(a: ComparableResult, b: ComparableResult, loss: float | None = None) -> Comparison:
    """Compare two results; with ``loss`` (0.02 is 2 %) also by the gate. NotComparable if they cannot be."""
    require_comparable(a, b)
    paired = interleaved(a, b)
    rows = tuple(_rows(a["metrics"], b["metrics"], paired))
    verdict = None if loss is None else gate(rows[0].name, rows[0].ratio, loss, rows[0].reason)
    return Comparison(a, b, differences(a, b), rows, verdict, paired)


def require_comparable(a: ComparableResult, b: ComparableResult) -> None:
    """NotComparable unless workload, phase, mode, unit, scale, variant and scenario are the same."""
    ours, theirs = (
        dict(one["same"]) | {name: one["facts"].get(MEANING, {}).get(name) for name in SAME_WORK}
        for one in (a, b)
    )
    unlike = [f"{name}: {ours[name]} and {theirs[name]}" for name in ours if ours[name] != theirs[name]]
    if unlike:
        raise NotComparable("not comparable: they differ in " + "; ".join(unlike))


def interleaved(a: ComparableResult, b: ComparableResult) -> bool:
    """Whether repeat r of ``a`` and repeat r of ``b`` ran one after the other on one machine, for every r.

    So `suite ab` runs them. What slows the machine then slows both repeats r.
    """
    times = [result.get("times") or [] for result in (a, b)]
    if len(times[0]) < 2 or len(times[0]) != len(times[1]):
        return False
    if None in (boots := {one["boot"] for side in times for one in side}) or len(boots) > 1:
        return False
    runs = sorted((one["began_ns"], one["ended_ns"], r) for side in times for r, one in enumerate(side))
    one_by_one = all(before[1] <= after[0] for before, after in pairwise(runs))
    return one_by_one and [r for *_, r in runs] == [r for r in range(len(times[0])) for _ in range(2)]


def differences(a: ComparableResult, b: ComparableResult) -> tuple[Difference, ...]:
    """Every fact that differs, in the order of the groups: facts that define what is measured first."""
    differing = []
    for group in GROUPS:
        ours, theirs = a["facts"].get(group, {}), b["facts"].get(group, {})
        names = [*ours, *(name for name in theirs if name not in ours)]
        differing += [
            Difference(group, name, ours.get(name), theirs.get(name))
            for name in names
            if ours.get(name) != theirs.get(name)
        ]
    return tuple(differing)


def _rows(
    a: Mapping[str, ComparableResult], b: Mapping[str, ComparableResult], paired: bool
) -> Iterator[MetricComparison]:
    """The metrics that either result has, in a fixed order: the first decides the gate."""
    for name in _LABELS:
        ours, theirs = a.get(name), b.get(name)
        if ours is None and theirs is None:
            continue
        yield _row(name, ours or _absent(name), theirs or _absent(name), paired)


def _absent(name: str) -> ComparableResult:
    reason = "not a single_stream run" if name.startswith("latency") else "not measured"
    return {"value": None, "unit": "", "reason": reason, "repeats": []}


def _row(name: str, a: ComparableResult, b: ComparableResult, paired: bool) -> MetricComparison:
    lacking = [
        f"{side}: {result['reason']}" for side, result in (("A", a), ("B", b)) if result["value"] is None
    ]
    reason = "; ".join(lacking)
    if not lacking and min(len(a["repeats"]), len(b["repeats"])) < 2:
        reason = ONE_REPEAT
    ratio = None if reason else ratio_of(name, a["repeats"], b["repeats"], paired)
    return MetricComparison(
        name, a["unit"] or b["unit"], a["value"], b["value"], ratio, conclusion_of(name, ratio), reason
    )


def ratio_of(
    name: str, a: Sequence[float], b: Sequence[float], paired: bool = False, confidence: float = CONFIDENCE
) -> Ratio:
    """B over A of one metric by its values of each repeat: the ratio of the two figures that tables show.

    A throughput is all work over all time. Every repeat does the same work, so its ratio is that of the mean
    times, not that of mean rates. The other metrics are means of their repeats.
    """
    of_means = statistics.paired if paired and len(a) == len(b) else statistics.welch
    if name != "throughput":
        return of_means(a, b, confidence)
    return of_means([1 / rate for rate in a], [1 / rate for rate in b], confidence).inverse()


def conclusion_of(name: str, ratio: Ratio | None) -> str:
    """B relative to A by this metric's ratio; indistinguishable where the interval contains 1."""
    if ratio is None:
        return UNKNOWN
    if not ratio.different:
        return INDISTINGUISHABLE
    above, below = _CONCLUSIONS.get(name, _TIME_CONCLUSIONS)
    return above if ratio.value > 1 else below


def gate(name: str, ratio: Ratio | None, loss: float, reason: str) -> Gate:
    """The gate by the deciding metric: throughput, or in quality mode the time to quality."""
    if ratio is None:
        return Gate(loss, UNDECIDABLE, reason)
    speed = ratio if name == "throughput" else ratio.inverse()
    outcome = statistics.gate(speed, loss)
    why = f"its speed is {100 * speed.low:.4g} % to {100 * speed.high:.4g} % of the reference's"
    if outcome == UNDECIDABLE:
        why += f", and the limit is {100 * (1 - loss):.4g} %"
        why += f"; minimum detectable effect {percent(ratio.detectable)}"
    return Gate(loss, outcome, why)


def difference_text(ratio: Ratio) -> str:
    """The relative difference, with the ends of its interval."""
    ends = sorted(abs(end - 1) for end in (ratio.low, ratio.high))
    return f"{percent(abs(ratio.value - 1))} ({percent(ends[0])} to {percent(ends[1])})"


def unlike_sentence(sides: str, names: Sequence[str]) -> str:
    """The last sentence of a comparison of results that measure different work; empty for equal work."""
    if not names:
        return ""
    return f"DIFFERENT SETTINGS: {sides} differ in {_first_names(names)}. The ratios compare different work."


def percent(part: float) -> str:
    """A relative difference as text."""
    return f"{100 * part:.3g} %" if abs(part) < 10 else f"{1 + part:.3g} times"


def result_identity(result: ComparableResult) -> dict[str, Any]:
    """Run id, digest, time, title and flags of a result, as JSON values."""
    return {name: result[name] for name in ("run_id", "sha256", "when", "title", "flags")}


def metric_values(row: MetricComparison) -> dict[str, Any]:
    """One metric as JSON values; the detectable difference is relative."""
    return {
        "unit": row.unit,
        "a": row.a,
        "b": row.b,
        "ratio": None if row.ratio is None else asdict(row.ratio),
        "conclusion": row.conclusion,
        "reason": row.reason,
    }


def difference_names(found: Sequence[Difference]) -> str:
    """The names of the first differences, and the number of others, in one line."""
    return _first_names([one.name for one in found])


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
