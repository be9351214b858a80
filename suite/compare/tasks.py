"""The tasks of comparisons and summaries for the sandbox."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.checker import check_result
from suite.checker.tasks import log_tasks
from suite.compare.comparable import comparable
from suite.compare.reading import content as content_of
from suite.compare.repeats import repeats_of
from suite.compare.result_row import row_of
from suite.compare.scaling_arm import scaling_arm
from suite.compare.scaling_set import read_set
from suite.compare.settings import measured
from suite.log.finding import RecordError
from suite.metrics.curves import curves_of


def compare(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``, and its comparison data."""
    return comparable(Path(path))


def row(path: str) -> dict[str, Any]:
    """The result in ``path`` as a row of a summary."""
    return row_of(Path(path)).as_dict()


def measured_result(path: str) -> dict[str, Any]:
    """The result in ``path`` as a row, with its settings and its repeats."""
    return measured(Path(path))


def curves(path: str) -> dict[str, Any] | None:
    """Step times and telemetry of the result in ``path``; None where its log is rejected."""
    verdict = check_result(Path(path))
    return curves_of(verdict.record) if verdict.record is not None and verdict.scored else None


def scaling_set(path: str) -> dict[str, Any]:
    """The scaling set in ``path``, or the defects for which it cannot be read."""
    try:
        return {"defects": [], "set": read_set(Path(path))}
    except RecordError as error:
        return {"defects": [asdict(defect) for defect in error.defects], "set": None}


def arm(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``, and its data as an arm of a scaling set."""
    return scaling_arm(Path(path))


def content(path: str, check: str) -> dict[str, Any]:
    """The content of the result in ``path`` for analyses; ``check`` is empty to skip the rules."""
    return content_of(Path(path), bool(check))


def repeats(path: str) -> dict[str, Any]:
    """The metrics of each completed repeat of the log in ``path``, which the rules do not check again."""
    return repeats_of(Path(path))


TASKS = log_tasks(
    {
        "compare": compare,
        "row": row,
        "measured": measured_result,
        "curves": curves,
        "content": content,
        "repeats": repeats,
        "scaling_set": scaling_set,
        "scaling_arm": arm,
    }
)
