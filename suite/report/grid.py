"""The table of a matrix: a row per benchmark, a column per framework, each cell a throughput or the cause.

A table holds one division, scale, kind of data and mode. A row is one benchmark with its limits; only the
cells of one row compare. Where a framework has several cells of one benchmark, each combination of the
options in which they differ has a row.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suite.compare.journal import differing
from suite.compare.result_row import OOM, ResultRow
from suite.log.safe import safe
from suite.report.cells import aligned, escaped, markdown_table, ranks_text
from suite.report.summary import harmless
from suite.report.table import show

NOT_AVAILABLE, FAILED, TIMED_OUT, NOT_RUN = "N/A", "failed", "timeout", "not run"
# The outcome of a cell in the journal and in the table of a sweep, by its status.
OUTCOMES = {
    "accepted": "ok",
    "flagged": "ok",
    OOM: "oom",
    TIMED_OUT: "timeout",
    FAILED: "error",
    NOT_AVAILABLE: "skipped",
    NOT_RUN: "not run",
}
# A run whose workers waited for batches for at least this share of the window measures the input pipeline.
INPUT_BOUND_PERCENT = 10.0
INPUT_BOUND = "input-bound"
_KEY = (
    "workload",
    "variant",
    "phase",
    "scenario",
    "precision",
    "batch_per_device",
    "devices",
    "nodes",
    "cache",
)
_LONGEST = 600  # characters of a heading or a cause
_METRICS = (
    "throughput_per_s",
    "throughput_low_per_s",
    "throughput_high_per_s",
    "cv_percent",
    "time_to_quality_s",
    "step_p50_ms",
    "peak_host_memory_bytes",
    "peak_device_memory_bytes",
    "input_wait_percent",
)
_COLUMNS = (
    *("division", "scale", "data", "mode", *_KEY, "strategy", "limits", "options", "framework", "status"),
    *("input_bound", "unit", *_METRICS, "device", "run_id", "why"),
)


@dataclass(frozen=True, slots=True)
class GridEntry:
    """One cell: its table and benchmark, its status, and its result where there is one."""

    group: tuple[str, str, str, str]  # division, scale, data, mode
    key: dict[str, Any]  # of the benchmark, framework included; batch as batch_per_device
    status: str  # accepted | flagged | OOM | N/A | failed | timeout | not run
    why: str = ""
    row: ResultRow | None = None
    limits: str = ""
    options: Mapping[str, str] = field(default_factory=dict)  # of the cell; in a table those that its row has

    @property
    def settled(self) -> bool:
        """Whether no further run is needed: accepted, or impossible on this machine or in this version."""
        return self.status in ("accepted", "flagged", OOM, NOT_AVAILABLE)

    @property
    def outcome(self) -> str:
        """``ok``, ``oom``, ``timeout``, ``error``, ``skipped`` or ``not run``."""
        return OUTCOMES[self.status]

    @property
    def framework(self) -> str:
        """The framework, which is the column."""
        return str(self.key.get("framework", ""))

    @property
    def device(self) -> str:
        """The device; empty without a result."""
        return self.row.device if self.row is not None else ""

    @property
    def input_bound(self) -> bool | None:
        """Whether the input pipeline limits the throughput; None where the log has no input wait."""
        wait = self.row.metrics.get("input_wait_percent") if self.row is not None else None
        return None if wait is None or wait.value is None else wait.value >= INPUT_BOUND_PERCENT

    @property
    def benchmark(self) -> str:
        """The benchmark as text, which is the row."""
        return " ".join(filter(None, (benchmark(self.key, self.limits), self.options_text)))

    @property
    def options_text(self) -> str:
        """The options as text."""
        return " ".join(f"{name}={value}" for name, value in self.options.items())

    @property
    def text(self) -> str:
        """The text of the cell."""
        if self.row is None or not self.row.metrics:
            return self.status
        name = "time_to_quality_s" if self.group[3] == "quality" else "throughput_per_s"
        metric = self.row.metrics.get(name)
        text = show(metric) if metric is not None else "null"
        if self.input_bound:
            text += f", {INPUT_BOUND} ({show(self.row.metrics['input_wait_percent'])})"
        return text


def benchmark(key: dict[str, Any], limits: str = "") -> str:
    """A benchmark as text, without the framework; devices and cache only where they are not the default."""
    parts = [str(key[name]) for name in ("workload", "variant", "phase") if key.get(name)]
    if key.get("scenario") not in (None, "", "offline"):
        parts.append(str(key["scenario"]))
    if key.get("storage"):
        parts += [f"to {key['storage']}", f"{key['images_per_shard']} images a shard"]
    if key.get("precision"):
        parts.append(str(key["precision"]))
    if key.get("batch_per_device"):
        parts.append(f"batch {key['batch_per_device']}")
    if str(key.get("devices", 1)) != "1":
        parts.append(ranks_text(key))
    if key.get("cache") == "cold":
        parts.append("cold cache")
    return " ".join(parts) + (f" ({limits})" if limits else "")


def entry_of(row: ResultRow) -> GridEntry:
    """The cell of a result."""
    division, data, mode = row.group
    status = row.status if row.status in ("accepted", "flagged", OOM) else FAILED
    group = (division, str(row.key.get("scale", "")), data, mode)
    return GridEntry(group, row.key, status, row.why, row, row.limits_text)


@dataclass(frozen=True, slots=True)
class Grid:
    """One table. ``rows``: each benchmark with its cells, one per framework, None if not requested."""

    group: tuple[str, str, str, str]
    frameworks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridEntry | None, ...]], ...]

    @property
    def title(self) -> str:
        """The group of the table as text."""
        division, scale, data, mode = (name or "unknown" for name in self.group)
        return f"{division} division, {scale} scale, {data} data, {mode}"

    @property
    def devices(self) -> str:
        """The devices of the results, by framework where they differ."""
        by_framework = {name: set[str]() for name in self.frameworks}
        for _, cells in self.rows:
            for name, cell in zip(self.frameworks, cells, strict=True):
                if cell is not None and cell.device:
                    by_framework[name].add(cell.device)
        known = {name: ", ".join(sorted(devices)) for name, devices in by_framework.items() if devices}
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return "; ".join(f"{name}: {devices}" for name, devices in known.items())


def grids(entries: Iterable[GridEntry]) -> tuple[Grid, ...]:
    """The cells, sorted into tables of comparable results; the order of ``entries`` is kept."""
    by_group: dict[tuple[str, str, str, str], dict[tuple[Any, ...], list[GridEntry]]] = {}
    for entry in entries:
        row = (*(str(entry.key.get(name, "")) for name in _KEY), ranks_text(entry.key), entry.limits)
        by_group.setdefault(entry.group, {}).setdefault(row, []).append(entry)
    return tuple(
        _grid(group, [row for alike in rows.values() for row in _rows(alike)])
        for group, rows in by_group.items()
    )


def _rows(alike: Sequence[GridEntry]) -> Iterator[dict[str, GridEntry]]:
    """The rows of the cells of one benchmark, by framework: one if no framework has several of the cells."""
    several = len({entry.framework for entry in alike}) < len(alike)
    names = [
        name for name in differing([entry.options for entry in alike]) if several and name != "framework"
    ]
    rows: dict[str, dict[str, GridEntry]] = {}
    for entry in alike:
        options = {name: entry.options[name] for name in names if name in entry.options}
        shown = replace(entry, options=options)
        rows.setdefault(shown.options_text, {})[entry.framework] = shown
    yield from rows.values()


def _grid(group: tuple[str, str, str, str], rows: Sequence[dict[str, GridEntry]]) -> Grid:
    names = tuple(dict.fromkeys(name for cells in rows for name in cells))
    lines = tuple(
        (next(iter(cells.values())).benchmark, tuple(cells.get(name) for name in names)) for cells in rows
    )
    return Grid(group, names, lines)


def to_text(tables: Sequence[Grid]) -> str:
    """The tables for a terminal, each followed by the causes of missing throughputs."""
    parts = []
    for table in tables:
        shown = aligned([["benchmark", *table.frameworks], *_cells(table)])
        parts.append("\n".join([_heading(table), *shown, *_reasons(table)]) + "\n")
    return "\n".join(parts)


def to_markdown(tables: Sequence[Grid]) -> str:
    """The tables as Markdown."""
    parts = []
    for table in tables:
        shown = "\n".join(markdown_table(["benchmark", *map(escaped, table.frameworks)], _cells(table)))
        reasons = "\n".join(f"- {escaped(line, _LONGEST)}" for line in _reasons(table))
        parts.append(
            f"## {escaped(_heading(table), _LONGEST)}\n\n{shown}\n" + (f"\n{reasons}\n" if reasons else "")
        )
    return "\n".join(parts)


def to_csv(tables: Sequence[Grid]) -> str:
    """CSV: one row per cell, one column per variable, units in the column names."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for record in _records(table):
            writer.writerow({name: harmless(value) for name, value in record.items()})
    return out.getvalue()


def to_json(tables: Sequence[Grid]) -> str:
    """JSON: every table with every cell."""
    names = ("division", "scale", "data", "mode")
    found = [
        {**dict(zip(names, table.group, strict=True)), "cells": list(_records(table))} for table in tables
    ]
    return json.dumps({"tables": found}, indent=2, allow_nan=False) + "\n"


def _heading(table: Grid) -> str:
    return safe(f"{table.title}; on {table.devices}" if table.devices else table.title, _LONGEST)


def _cells(table: Grid) -> Iterable[list[str]]:
    for name, cells in table.rows:
        yield [name, *(cell.text if cell else "-" for cell in cells)]


def _reasons(table: Grid) -> list[str]:
    """One line per cause, with the cells that it applies to."""
    by_cause: dict[tuple[str, str], list[str]] = {}
    for name, cells in table.rows:
        for cell in cells:
            if cell is not None and cell.why:
                by_cause.setdefault((cell.status, cell.why), []).append(f"{name} in {cell.framework}")
    lines = []
    for (status, why), names in by_cause.items():
        cells_text = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
        lines.append(safe(f"{status}: {why} [{cells_text}]", _LONGEST))
    return lines


def _records(table: Grid) -> Iterable[dict[str, Any]]:
    for _, cells in table.rows:
        for cell in cells:
            if cell is not None:
                yield _record(cell)


def _record(cell: GridEntry) -> dict[str, Any]:
    metrics = cell.row.metrics if cell.row is not None else {}
    values = {name: metrics[name].value if name in metrics else None for name in _METRICS}
    return {
        **dict(zip(("division", "scale", "data", "mode"), cell.group, strict=True)),
        **{name: cell.key.get(name) for name in (*_KEY, "strategy")},
        "limits": cell.limits,
        "options": cell.options_text,
        "framework": cell.framework,
        "status": cell.status,
        "input_bound": cell.input_bound,
        "unit": cell.row.unit if cell.row is not None else None,
        **values,
        "device": cell.device or None,
        "run_id": cell.row.run_id if cell.row is not None else None,
        "why": cell.why,
    }
