"""Results in a notebook: ``suite.load(path)`` and ``suite.compare(a, b)``.

A log is hostile input: the sandbox reads and checks it, as for `make check`, and returns plain values.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from suite.checker.sandboxed import VerdictSummary, ended_verdict, limit_finding
from suite.compare import compare as two
from suite.compare.comparable import COMPARE_TASKS
from suite.compare.frames import Table, table_of
from suite.compare.repeats import repeat_of_dict
from suite.compare.result_row import result_folders
from suite.log.files import LOG
from suite.log.safe import safe
from suite.metrics.metric import Metric
from suite.sandbox.sandbox import LimitsError, Sandbox


class NotAccepted(ValueError):
    """A comparison needs results that the checker accepts and that have a score."""


@dataclass(frozen=True, eq=False)
class Result:
    """One result. Its tables are pandas, Arrow or plain rows (:func:`suite.compare.frames.table_of`)."""

    path: Path
    accepted: bool | None  # by the checker, and not withdrawn; None with check=False
    verdict: VerdictSummary | None
    title: str
    header: Mapping[str, Any]  # the data of the log's first line: key, settings, rules, dataset …
    metrics: Mapping[str, Metric]  # by name; empty without a score
    _content: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self.header["run_id"])

    @property
    def sha256(self) -> str:
        """SHA-256 of the log."""
        return str(self._content["sha256"])

    @property
    def key(self) -> Mapping[str, Any]:
        """What was measured: the benchmark key, or that of a conversion."""
        found: Mapping[str, Any] = self.header.get("key") or self.header["conversion"]
        return found

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the run, such as ``threads``."""
        found: Mapping[str, Any] = self.header.get("settings") or {}
        return found

    @cached_property
    def steps(self) -> Table:
        """One row per step and rank: ``repeat rank step phase duration_ns units loss grad_norm`` and more."""
        return table_of(self._content["steps"])

    @cached_property
    def telemetry(self) -> Table:
        """One row per reading and device: counters at window start and end, and 1 Hz samples."""
        return table_of(self._content["telemetry"])

    @cached_property
    def evaluations(self) -> Table:
        """One row per quality evaluation (mode quality)."""
        return table_of(self._content["evaluations"])

    @cached_property
    def repeats(self) -> Table:
        """One row per completed repeat: its units of work, and its metrics by the names of ``metrics``."""
        rows = [repeat_of_dict(one) for one in self._content["repeats"]]
        names = list(dict.fromkeys(name for row in rows for name in row.metrics))
        columns: dict[str, list[Any]] = {
            "repeat": [row.repeat for row in rows],
            "units": [row.units for row in rows],
        }
        for name in names:
            columns[name] = [row.metrics[name].value if name in row.metrics else None for row in rows]
        return table_of(columns)

    def __repr__(self) -> str:
        return f"<Result {safe(self.run_id)}: {safe(self.title, 300)}; {_judgement(self.verdict)}>"


class Results(Sequence[Result]):
    """The results in a folder, in the order of their names."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = tuple(results)

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, at: Any) -> Any:
        return Results(self._results[at]) if isinstance(at, slice) else self._results[at]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    @cached_property
    def table(self) -> Table:
        """One row per result: its key, whether it is accepted, and its metrics."""
        keys = list(dict.fromkeys(name for one in self for name in one.key))
        names = list(dict.fromkeys(name for one in self for name in one.metrics))
        columns: dict[str, list[Any]] = {
            "run_id": [one.run_id for one in self],
            "accepted": [one.accepted for one in self],
        }
        columns |= {name: [one.key.get(name) for one in self] for name in keys}
        columns |= {name: [_value(one, name) for one in self] for name in names}
        return table_of(columns)

    def __repr__(self) -> str:
        return "\n".join([f"<{len(self)} results>", *map(repr, self)])


def _value(result: Result, name: str) -> float | int | None:
    return result.metrics[name].value if name in result.metrics else None


def load(path: str | Path, check: bool = True) -> Any:
    """The :class:`Result` in ``path``, or the :class:`Results` below it if ``path`` is no result itself.

    The checker judges each log first, in the sandbox of `make check`. A rejected or withdrawn result is
    returned without metrics, and with a warning; ``check=False`` skips the rules, and ``accepted`` is None.
    Raises FileNotFoundError without a result, ValueError for a log whose format is broken.
    """
    path = Path(path)
    with Sandbox(COMPARE_TASKS) as sandbox:
        if path.name == LOG or (path / LOG).is_file():
            return _load_one(sandbox, path, check)
        found = [_load_one(sandbox, folder, check) for folder in result_folders([path])]
    if not found:
        raise FileNotFoundError(f"expected a result or a folder of results, found none at {safe(path)}")
    return Results(found)


def _load_one(sandbox: Sandbox, path: Path, check: bool) -> Result:
    try:
        value = sandbox.run("content", path=path, check="1" if check else "")
    except LimitsError as error:
        value = {"verdict": ended_verdict(path, limit_finding(error)), "defects": [], "content": None}
    verdict = None if value["verdict"] is None else VerdictSummary.of_dict(value["verdict"])
    content = value["content"]
    if content is None:
        findings = value["defects"] if verdict is None else [asdict(one) for one in verdict.rejections]
        first = findings[0]
        raise ValueError(
            f"{safe(path)} cannot be read: {safe(first['rule'])}: expected {safe(first['expected'])}, found "
            f"{safe(first['found'])} at {safe(first['location'])}"
        )
    metrics = {name: Metric(**metric) for name, metric in content["metrics"].items()}
    accepted = None if verdict is None else verdict.accepted
    result = Result(path, accepted, verdict, content["title"], content["header"], metrics, content)
    if accepted is False:
        warnings.warn(f"{safe(path)}: {_judgement(verdict)}; it has no metrics", stacklevel=3)
    return result


def _judgement(verdict: VerdictSummary | None) -> str:
    """What the checker decided, in a few words."""
    if verdict is None:
        return "not checked"
    if verdict.value.get("withdrawn"):
        return safe(verdict.value["withdrawn"], 1000)
    if not verdict.accepted:
        first = verdict.rejections[0]
        return safe(
            f"rejected by the checker: {first.rule}: expected {first.expected}, found {first.found}", 300
        )
    flagged = sorted({flag.rule for flag in verdict.flags})
    flags = f", flagged: {', '.join(flagged)}" if flagged else ""
    score = "" if verdict.scored else f", without a score: {verdict.reached}"
    return safe(f"accepted by the checker, rules {verdict.rules}{score}{flags}", 300)


def compare_loaded(a: Result | Path | str, b: Result | Path | str) -> two.Comparison:
    """Compare two results, loaded or by their paths, as `make compare` does.

    Raises NotAccepted for a result that is rejected, withdrawn, unchecked or without a score, and
    :class:`suite.compare.compare.NotComparable` where the two measure different things.
    """
    sides = []
    for side, one in (("A", a), ("B", b)):
        result = one if isinstance(one, Result) else load(one)
        if not isinstance(result, Result):
            raise ValueError(f"{side}: expected one result, found a folder with {len(result)}")
        if result._content["comparable"] is None:
            raise NotAccepted(f"{side}: {safe(result.run_id)} is {_judgement(result.verdict)}")
        sides.append(result._content["comparable"])
    if sides[0]["sha256"] == sides[1]["sha256"]:
        raise ValueError("A and B are one log: expected two runs")
    return two.compare(sides[0], sides[1])
