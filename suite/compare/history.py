"""A history of results: a folder with one small JSON file a result, and how one more compares with them.

A file holds what :func:`suite.compare.comparable.comparable` returned of the result, and is named after the
run id; kept under version control, two branches that add results never conflict. A **series** is what may
stand in one history: the same key, settings and machine. Code, image, versions of software and rules
may change within one; where its level changes, what else changed there is named.
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
from suite.compare.compare import ComparableResult, Difference, Gate, differences, gate, result_of, word
from suite.compare.ratio import Ratio
from suite.log.safe import safe

FORMAT = "suite-history/1"
ENOUGH = 3  # earlier results of one level that tell how far runs lie apart
_MOST = 1 << 20  # bytes of one file
_DECIDES = {"throughput": "throughput", "quality": "time_to_quality_s"}  # the metric, by mode
_MACHINE = ("cpu.model", "cpu.cores", "cpu.threads")
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLAIN = (str, int, float, bool, type(None))
EMPTY = "no earlier result of this key, settings and machine is in the history"


class HistoryProblem(ValueError):
    """A file of the history cannot be used, or written; the message is safe to print."""


@dataclass(frozen=True, slots=True)
class Change:
    """A new level that begins at ``result``; ``ratio`` is its mean over that of the level before."""

    result: ComparableResult
    ratio: float
    differs: tuple[Difference, ...]  # from the result before it


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one result stands in its series. ``ratio`` is the result over the level that came before it."""

    result: ComparableResult
    metric: str
    earlier: tuple[ComparableResult, ...]  # of the series, in order of time
    level: tuple[ComparableResult, ...]  # those since the last change
    others: int  # results of other series
    changes: tuple[Change, ...]  # of the series with this result
    ratio: Ratio | None
    word: str
    reason: str
    gate: Gate | None

    @property
    def predicted(self) -> bool:
        """Whether the interval holds how far earlier runs lie apart, not only the repeats of two runs."""
        return len(self.level) >= ENOUGH

    def as_dict(self) -> dict[str, Any]:
        """The standing as JSON values."""
        return {
            "format": "suite-standing/1",
            "result": result_of(self.result),
            "metric": self.metric,
            "earlier": [result_of(result) for result in self.earlier],
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
            "word": self.word,
            "reason": self.reason,
            "gate": None if self.gate is None else asdict(self.gate),
        }


def compare_with_history(
    result: ComparableResult, known: Sequence[ComparableResult], loss: float | None = None
) -> Standing:
    """Hold a result against the history ``known``, and against ``loss`` (0.02 is 2 %) where one is given."""
    known = [one for one in known if one["sha256"] != result["sha256"]]
    earlier = sorted(
        (one for one in known if series(one) == series(result)), key=lambda one: str(one["when"])
    )
    metric = _DECIDES[result["same"]["mode"]]
    usable = [one for one in earlier if _value(one, metric) is not None]
    value = _value(result, metric)
    level = usable[max(change_points(_logs(usable, metric)), default=0) :]
    ratio, reason = None, "" if usable else EMPTY
    if value is None:
        reason = str(result["metrics"][metric]["reason"])
    elif usable:
        ratio, reason = _ratio(result, level, metric, value)
    both = [*usable, result] if value is not None else usable
    asked = None if loss is None else gate(metric, ratio, loss, reason)
    return Standing(
        result, metric, tuple(earlier), tuple(level), len(known) - len(earlier),
        tuple(_changes(both, metric)), ratio, word(metric, ratio), reason, asked,
    )  # fmt: skip


def _ratio(
    result: ComparableResult, level: Sequence[ComparableResult], metric: str, value: float
) -> tuple[Ratio | None, str]:
    """Against the level's runs where those are enough to tell how far runs lie apart, else the last one."""
    if len(level) >= ENOUGH:
        return statistics.predicted([_value(one, metric) or 0.0 for one in level], value), ""
    ours, theirs = result["metrics"][metric]["repeats"], level[-1]["metrics"][metric]["repeats"]
    if min(len(ours), len(theirs)) < 2:
        return None, f"single repeats have no spread, and fewer than {ENOUGH} earlier results tell of none"
    return statistics.welch(theirs, ours), ""


def _changes(results: Sequence[ComparableResult], metric: str) -> list[Change]:
    logs = _logs(results, metric)
    points = change_points(logs)
    found = []
    for start, at, end in zip([0, *points], points, [*points[1:], len(logs)], strict=False):
        step = math.fsum(logs[at:end]) / (end - at) - math.fsum(logs[start:at]) / (at - start)
        differs = differences(results[at - 1], results[at])
        found.append(Change(results[at], math.exp(step), differs))
    return found


def _logs(results: Sequence[ComparableResult], metric: str) -> list[float]:
    return [math.log(_value(one, metric) or 1.0) for one in results]


def _value(result: ComparableResult, metric: str) -> float | None:
    value = result["metrics"].get(metric, {}).get("value")
    return float(value) if value is not None and value > 0 else None


def series(result: ComparableResult) -> str:
    """What must be equal for two results to stand in one history: key, settings and machine, as text.

    Names that a log has as null, or (of an older version) not at all, count alike.
    """
    facts = result["facts"]
    machine = {
        name: value
        for name, value in facts.get(SYSTEM, {}).items()
        if name in _MACHINE or (name.startswith("accelerators.devices.") and name.endswith(".name"))
    }
    # what a person chose; hyperparameters and datasets follow from that and from the rules
    key = {name: value for name, value in facts.get(MEANING, {}).items() if "." not in name}
    key.pop("initial_parameters", None)
    parts = [result["same"], key, facts.get(FRAMEWORK, {}), facts.get(SETTINGS, {}), machine]
    known = [{name: value for name, value in part.items() if value is not None} for part in parts]
    return json.dumps(known, sort_keys=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """Every result in ``folder``, in order of file names; HistoryProblem where one cannot be used."""
    if not folder.is_dir():
        raise HistoryProblem(
            f"expected a folder with a history, found none at {safe(folder)}; --add makes it"
        )
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
        value = json.loads(content, parse_constant=_no_number) if len(content) <= _MOST else None
    except (OSError, ValueError, RecursionError):
        value = None
    if not (isinstance(value, dict) and _is_result(value)):
        raise HistoryProblem(
            f"expected a result as `--add` writes it ({FORMAT}), found something else in {safe(path)}; "
            "restore it, or take it away"
        )
    return value


def _no_number(name: str) -> float:
    raise ValueError(name)


def _is_result(value: Mapping[str, Any]) -> bool:
    """Whether a file holds what a comparison reads, in the types that it relies on."""
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
        and all(isinstance(one, _PLAIN) for group in facts.values() for one in group.values())
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
    """Write a result into the history; None where it is there already. OSError, HistoryProblem."""
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
        raise HistoryProblem(f"another result of the same run id is in {safe(path)}: take one away") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(content)
    return path
