"""Quality runs by pair: how many reached the target, the last values, the times to the target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.report.cells import aligned, markdown_table
from suite.report.grid import NOT_AVAILABLE, GridEntry, benchmark

_HEADS = ("benchmark", "framework", "target", "reached", "quality", "seconds", "what is missing")

_LONGEST = 600  # characters of a cell


@dataclass(frozen=True, slots=True)
class QualityRow:
    """The runs of one pair, one per seed."""

    benchmark: str
    framework: str
    target: float | None  # None if no run has a result
    metric: str
    qualities: tuple[float, ...]  # at the last evaluation of each run that has a result
    seconds: tuple[float, ...]  # to the target, of each run that reached it
    runs: int
    missing: tuple[str, ...]  # the distinct causes of runs that did not reach the target
    possible: bool  # False if this version or machine cannot run it

    @property
    def done(self) -> bool:
        """Whether no further run is needed: every run reached the target, or none is possible."""
        return not self.possible or len(self.seconds) == self.runs


def quality_rows(entries: Iterable[GridEntry]) -> tuple[QualityRow, ...]:
    """The runs by pair, in the order of ``entries``."""
    pairs: dict[tuple[Any, ...], list[GridEntry]] = {}
    for entry in entries:
        pairs.setdefault((entry.group, entry.benchmark, entry.framework), []).append(entry)
    return tuple(_row(list(runs)) for runs in pairs.values())


def _row(runs: Sequence[GridEntry]) -> QualityRow:
    metrics = [entry.row.metrics for entry in runs if entry.row is not None and entry.row.metrics]
    qualities = [value for of_run in metrics if (value := of_run["quality"].value) is not None]
    seconds = [of_run["time_to_quality_s"].value for of_run in metrics]
    first = metrics[0] if metrics else None
    return QualityRow(
        benchmark(runs[0].key, runs[0].limits),
        runs[0].framework,
        first["quality_target"].value if first else None,
        first["quality"].unit if first else "",
        tuple(qualities),
        tuple(value for value in seconds if value is not None),
        len(runs),
        tuple(dict.fromkeys(reason for entry in runs if (reason := _missing(entry)))),
        not all(entry.status == NOT_AVAILABLE for entry in runs),
    )


def _missing(entry: GridEntry) -> str:
    """Why a run has no time to its target; empty if it has one."""
    time = entry.row.metrics.get("time_to_quality_s") if entry.row is not None else None
    if time is None:
        return f"{entry.status}: {entry.why}" if entry.why else entry.status
    return time.reason


def _range(values: Sequence[float], digits: int) -> str:
    return "–".join(dict.fromkeys(f"{value:.{digits}f}" for value in (min(values), max(values))))


def _cells(row: QualityRow) -> list[str]:
    return [
        row.benchmark,
        row.framework,
        f"{row.metric} {row.target:g}" if row.target is not None else "-",
        f"{len(row.seconds)} of {row.runs}" if row.possible else NOT_AVAILABLE,
        _range(row.qualities, 3) if row.qualities else "-",
        _range(row.seconds, 1) if row.seconds else "-",
        "; ".join(row.missing),
    ]


def to_text(rows: Sequence[QualityRow]) -> str:
    """The table for a terminal."""
    return "\n".join(aligned([_HEADS, *map(_cells, rows)], _LONGEST)) + "\n"


def to_markdown(rows: Sequence[QualityRow]) -> str:
    """The table as Markdown."""
    return "\n".join(markdown_table(_HEADS, map(_cells, rows), _LONGEST)) + "\n"


def to_json(rows: Sequence[QualityRow]) -> str:
    """JSON: every number as measured; missing ones are null or absent from their list."""
    return (
        json.dumps(
            [
                {
                    "benchmark": row.benchmark,
                    "framework": row.framework,
                    "metric": row.metric or None,
                    "target": row.target,
                    "runs": row.runs,
                    "quality": list(row.qualities),
                    "seconds_to_target": list(row.seconds),
                    "missing": list(row.missing),
                }
                for row in rows
            ],
            indent=2,
        )
        + "\n"
    )
