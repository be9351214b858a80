"""The metrics of each repeat of a result, by the names that a whole result has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from suite.compare.comparable import COMPARE_TASKS
from suite.compare.result_row import ResultRow
from suite.log.model import Record
from suite.log.reader import read_result
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of
from suite.sandbox.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class RepeatMetrics:
    """One completed repeat: its index, its units of work (None in quality mode) and its metrics."""

    repeat: int
    units: int | None
    metrics: dict[str, Metric]


def repeat_metrics(record: Record) -> Iterator[RepeatMetrics]:
    """The metrics of each completed repeat of ``record``, as if it were the only one."""
    for repeat in record.repeats:
        if repeat.end is not None:
            yield RepeatMetrics(repeat.index, repeat.units, metrics_of(replace(record, repeats=(repeat,))))


def repeats_of(folder: Path) -> dict[str, Any]:
    """SHA-256 of the log in ``folder``, and the metrics of its repeats as JSON values."""
    record = read_result(folder)
    return {"sha256": record.digest, "repeats": [asdict(one) for one in repeat_metrics(record)]}


def with_repeats(
    rows: Mapping[Path, ResultRow],
) -> Iterator[tuple[ResultRow, list[RepeatMetrics]]]:
    """Each row that has a score, with its repeats. ValueError if a log changed since its row was made."""
    with Sandbox(COMPARE_TASKS) as sandbox:
        for folder, row in rows.items():
            if not row.metrics:
                continue
            found = sandbox.run("repeats", path=folder)
            if found["sha256"] != row.digest:
                raise ValueError(f"run.jsonl of {row.run_id} changed while the command ran: run it again")
            yield row, [repeat_of_dict(one) for one in found["repeats"]]


def repeat_of_dict(value: Mapping[str, Any]) -> RepeatMetrics:
    """One repeat from its JSON values."""
    metrics = {name: Metric(**metric) for name, metric in value["metrics"].items()}
    return RepeatMetrics(value["repeat"], value["units"], metrics)
