"""A history of results, a folder with one small JSON file per result, and the comparison of a result with it.

A file holds the data of :func:`suite.compare.comparable.comparable` and is named after the run id; under
version control, two branches that add results never conflict. A **series** is the results of a history that
are compared: those of the same key, settings and machine. Code, container image and versions of software and
rules may change within a series; where its level changes, the report names the other changes.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.compare import ratio as statistics
from suite.compare.change_points import change_points
from suite.compare.comparable import FRAMEWORK, MEANING, SETTINGS, SYSTEM
from suite.compare.compare import (
    ComparableResult,
    Difference,
    Gate,
    conclusion_of,
    differences,
    gate,
    ratio_of,
    result_identity,
)
from suite.compare.ratio import Ratio
from suite.log.safe import safe

FORMAT = "suite-history/1"
MIN_RUNS = 3  # earlier results of one level from which the spread between runs is estimated
_MOST = 1 << 20  # bytes of one file
_DECIDES = {"throughput": "throughput", "quality": "time_to_quality_s"}  # the metric, by mode
_MACHINE = ("cpu.model", "cpu.cores", "cpu.threads")
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SCALAR = (str, int, float, bool, type(None))
NO_EARLIER_RESULT = "no earlier result of this key, settings and machine is in the history"


class HistoryProblem(ValueError):
    """A file of the history cannot be read or written; the message is safe to print."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A new level that begins at ``result``; ``ratio`` is its mean over the mean of the previous level."""

    result: ComparableResult
    ratio: float
    differs: tuple[Difference, ...]  # from the result before it


@dataclass(frozen=True, slots=True)
class HistoryComparison:
    """One result compared with its series. ``ratio`` is the result over the latest level before it."""

    result: ComparableResult
    metric: str
    earlier: tuple[ComparableResult, ...]  # results of the series, in order of time
    level: tuple[ComparableResult, ...]  # those since the last change
    others: int  # results of other series
    changes: tuple[LevelChange, ...]  # of the series with this result
    ratio: Ratio | None
    conclusion: str
    reason: str
    gate: Gate | None

    @property
    def uses_run_spread(self) -> bool:
        """Whether the interval includes the spread between earlier runs, not only that of the repeats."""
        return len(self.level) >= MIN_RUNS

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "format": "suite-standing/1",
            "result": result_identity(self.result),
            "metric": self.metric,
            "earlier": [result_identity(result) for result in self.earlier],
            "level": len(self.level),
            "others": self.others,
            "changes": [
                {
                    "run_id": change.result["run_id"],
                    "when": change.result["when"],
                    "ratio": change.ratio,
                    "differs": [asdict(one) for one in change.differs],
                }
                for change in self.changes
            ],
            "ratio": None if self.ratio is None else asdict(self.ratio),
            "conclusion": self.conclusion,
            "reason": self.reason,
            "gate": None if self.gate is None else asdict(self.gate),
        }


def compare_with_history(
    result: ComparableResult, known: Sequence[ComparableResult], loss: float | None = None
) -> HistoryComparison:
    """Compare a result with the history ``known``, and with the gate at ``loss`` (0.02 is 2 %) if given."""
    known = [one for one in known if one["sha256"] != result["sha256"]]
    series = [one for one in known if series_key(one) == series_key(result)]
    earlier = [one for one in series if str(one["when"]) <= str(result["when"])]
    earlier.sort(key=lambda one: str(one["when"]))
    metric = _DECIDES[result["same"]["mode"]]
    usable = [one for one in earlier if _value(one, metric) is not None]
    value = _value(result, metric)
    level = usable[max(change_points(_logs(usable, metric)), default=0) :]
    ratio, reason = None, "" if usable else NO_EARLIER_RESULT
    if value is None:
        reason = str(result["metrics"][metric]["reason"])
    elif usable:
        ratio, reason = _ratio(result, level, metric, value)
    with_result = [*usable, result] if value is not None else usable
    verdict = None if loss is None else gate(metric, ratio, loss, reason)
    return HistoryComparison(
        result, metric, tuple(earlier), tuple(level), len(known) - len(series),
        tuple(_changes(with_result, metric)), ratio, conclusion_of(metric, ratio), reason, verdict,
    )  # fmt: skip


def _ratio(
    result: ComparableResult, level: Sequence[ComparableResult], metric: str, value: float
) -> tuple[Ratio | None, str]:
    """The ratio to the level's runs where they are enough to estimate the spread, else to the last run."""
    if len(level) >= MIN_RUNS:
        return statistics.prediction_ratio([_value(one, metric) or 0.0 for one in level], value), ""
    ours, theirs = result["metrics"][metric]["repeats"], level[-1]["metrics"][metric]["repeats"]
    if min(len(ours), len(theirs)) < 2:
        return None, f"a single repeat has no spread, and there are fewer than {MIN_RUNS} earlier results"
    return ratio_of(metric, theirs, ours), ""


def _changes(results: Sequence[ComparableResult], metric: str) -> list[LevelChange]:
    logs = _logs(results, metric)
    points = change_points(logs)
    changes = []
    for start, at, end in zip([0, *points], points, [*points[1:], len(logs)], strict=False):
        step = math.fsum(logs[at:end]) / (end - at) - math.fsum(logs[start:at]) / (at - start)
        differs = differences(results[at - 1], results[at])
        changes.append(LevelChange(results[at], math.exp(step), differs))
    return changes


def _logs(results: Sequence[ComparableResult], metric: str) -> list[float]:
    return [math.log(_value(one, metric) or 1.0) for one in results]


def _value(result: ComparableResult, metric: str) -> float | None:
    value = result["metrics"].get(metric, {}).get("value")
    return float(value) if value is not None and value > 0 else None


def series_key(result: ComparableResult) -> str:
    """Key, settings and machine as text: equal for two results of one series.

    A null and a missing name are equal.
    """
    facts = result["facts"]
    machine = {
        name: value
        for name, value in facts.get(SYSTEM, {}).items()
        if name in _MACHINE or (name.startswith("accelerators.devices.") and name.endswith(".name"))
    }
    # only the user's choices: hyperparameters and dataset facts follow from them and from the rules
    key = {name: value for name, value in facts.get(MEANING, {}).items() if "." not in name}
    key.pop("initial_parameters", None)
    parts = [result["same"], key, facts.get(FRAMEWORK, {}), facts.get(SETTINGS, {}), machine]
    known = [{name: value for name, value in part.items() if value is not None} for part in parts]
    return json.dumps(known, sort_keys=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """Every result in ``folder``, in order of file names; HistoryProblem where one cannot be used."""
    if not folder.is_dir():
        raise HistoryProblem(
            f"expected a folder with a history, found none at {safe(folder)}; --add creates it"
        )
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
        value = json.loads(content, parse_constant=_refuse_constant) if len(content) <= _MOST else None
    except (OSError, ValueError, RecursionError):
        value = None
    if not (isinstance(value, dict) and _is_result(value)):
        raise HistoryProblem(
            f"expected a result as `--add` writes it ({FORMAT}), found something else in {safe(path)}; "
            "restore or remove the file"
        )
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _is_result(value: Mapping[str, Any]) -> bool:
    """Whether a file holds all values that a comparison reads, in the expected types."""
    same, facts, metrics = (value.get(name) for name in ("same", "facts", "metrics"))
    return (
        value.get("format") == FORMAT
        and all(
            isinstance(value.get(name), str) for name in ("run_id", "sha256", "when", "title", "scenario")
        )
        and isinstance(value.get("flags"), list)
        and all(isinstance(flag, str) for flag in value["flags"])
        and isinstance(same, dict)
        and set(same) == {"workload", "phase", "mode", "unit"}
        and all(isinstance(one, str) for one in same.values())
        and same["mode"] in _DECIDES
        and isinstance(facts, dict)
        and all(isinstance(group, dict) for group in facts.values())
        and all(isinstance(one, _SCALAR) for group in facts.values() for one in group.values())
        and isinstance(metrics, dict)
        and all(_is_metric(metric) for metric in metrics.values())
    )


def _is_metric(metric: Any) -> bool:
    return (
        isinstance(metric, dict)
        and isinstance(metric.get("unit"), str)
        and isinstance(metric.get("reason"), str)
        and isinstance(metric.get("repeats"), list)
        and (metric.get("value") is None or _is_positive(metric["value"]))
        and all(_is_positive(one) for one in metric["repeats"])
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300


def add(folder: Path, result: ComparableResult) -> Path | None:
    """Write a result into the history; None if it is there already. Raises OSError, HistoryProblem."""
    if not (_RUN_ID.fullmatch(result["run_id"]) and _SHA256.fullmatch(result["sha256"])):
        raise HistoryProblem(f"expected a run id that can name a file, found {safe(result['run_id'])}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['run_id']}.json"
    content = json.dumps({"format": FORMAT, **result}, indent=1, sort_keys=True, allow_nan=False) + "\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except FileExistsError:
        if _read(path)["sha256"] == result["sha256"]:
            return None
        raise HistoryProblem(
            f"{safe(path)} holds another result of the same run id: remove one of the two"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(content)
    return path
