"""What runs in quality mode reached, by pair: how many reached the target, the last values, the times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.report.grid import NOT_AVAILABLE, GridEntry, benchmark
from suite.report.markdown import escaped

_HEADS = ("benchmark", "framework", "target", "reached", "quality", "seconds", "what is missing")


@dataclass(frozen=True, slots=True)
class QualityRow:
    """The runs of one pair: one a seed."""

    benchmark: str
    framework: str
    target: float | None  # None where no run left a result
    metric: str
    qualities: tuple[float, ...]  # at the last evaluation of each run that has a result
    seconds: tuple[float, ...]  # to the target, of each run that reached it
    runs: int
    missing: tuple[str, ...]  # one reason for each kind of run that did not reach the target
    possible: bool  # False where such a run cannot be in this version or on this machine

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: every run reached the target, or none can be."""
        return not self.possible or len(self.seconds) == self.runs


def rows(entries: Iterable[GridEntry]) -> tuple[QualityRow, ...]:
    """The runs by pair, in the order in which they come."""
    pairs: dict[tuple[Any, ...], list[GridEntry]] = {}
    for entry in entries:
        pairs.setdefault((entry.group, entry.benchmark, entry.framework), []).append(entry)
    return tuple(_row(list(runs)) for runs in pairs.values())


def _row(runs: Sequence[GridEntry]) -> QualityRow:
    metrics = [entry.row.metrics for entry in runs if entry.row is not None and entry.row.metrics]
    named = [(found["quality"], found["quality_target"]) for found in metrics]
    qualities = [quality.value for quality, _ in named if quality.value is not None]
    seconds = [found["time_to_quality_s"].value for found in metrics]
    first = named[0] if named else None
    return QualityRow(
        benchmark(runs[0].key, runs[0].limits),
        runs[0].framework,
        first[1].value if first else None,
        first[0].unit if first else "",
        tuple(qualities),
        tuple(value for value in seconds if value is not None),
        len(runs),
        tuple(dict.fromkeys(reason for entry in runs if (reason := _missing(entry)))),
        not all(entry.status == NOT_AVAILABLE for entry in runs),
    )


def _missing(entry: GridEntry) -> str:
    """Why a run has no time to its target; empty where it has one."""
    figure = entry.row.metrics.get("time_to_quality_s") if entry.row is not None else None
    if figure is None:
        return f"{entry.status}: {entry.why}" if entry.why else entry.status
    return figure.reason


def _range(values: Sequence[float], digits: int) -> str:
    shown = list(dict.fromkeys(f"{value:.{digits}f}" for value in (min(values), max(values))))
    return "–".join(shown)


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


def to_text(found: Sequence[QualityRow]) -> str:
    """The table for a terminal."""
    lines = [list(_HEADS), *(_cells(row) for row in found)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(_HEADS))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(line.rstrip() for line in padded) + "\n"


def to_markdown(found: Sequence[QualityRow]) -> str:
    """The same for people who read Markdown."""
    lines = [list(_HEADS), ["---"] * len(_HEADS), *([escaped(cell) for cell in _cells(row)] for row in found)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def to_json(found: Sequence[QualityRow]) -> str:
    """Every number as it was measured; what is missing is null or empty."""
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
                for row in found
            ],
            indent=2,
        )
        + "\n"
    )
