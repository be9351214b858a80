"""The table of a matrix: benchmarks down, frameworks across, each cell a throughput or why there is none.

A table holds one division, scale, kind of data and mode; within it a row is one benchmark with its limits,
and only the cells of one row compare.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.compare.result_row import OOM, ResultRow
from suite.log.safe import safe
from suite.report.markdown import escaped
from suite.report.summary import harmless
from suite.report.table import show

NOT_AVAILABLE, FAILED, NOT_RUN = "N/A", "failed", "not run"
# From this share of the window on that the worker waited for its next batch, the number is held to be the
# input's and no longer the model's.
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
    "cache",
)
_FIGURES = (
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
    *("division", "scale", "data", "mode", *_KEY, "limits", "framework", "status", "input_bound", "unit"),
    *(*_FIGURES, "device", "run_id", "why"),
)


@dataclass(frozen=True, slots=True)
class GridEntry:
    """One cell: where it stands, what came of it, and its result where there is one."""

    group: tuple[str, str, str, str]  # division, scale, data, mode
    key: dict[str, Any]  # of the benchmark, framework included; batch as batch_per_device
    status: str  # accepted | flagged | OOM | N/A | failed | not run
    why: str = ""
    row: ResultRow | None = None
    limits: str = ""

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do: accepted, or known to be impossible here."""
        return self.status in ("accepted", "flagged", OOM, NOT_AVAILABLE)

    @property
    def framework(self) -> str:
        """The column."""
        return str(self.key.get("framework", ""))

    @property
    def device(self) -> str:
        """What it ran on; empty without a result."""
        return self.row.device if self.row is not None else ""

    @property
    def input_bound(self) -> bool | None:
        """Whether the input held the run up; None where the log does not say how long it waited."""
        figure = self.row.metrics.get("input_wait_percent") if self.row is not None else None
        if figure is None or figure.value is None:
            return None
        return figure.value >= INPUT_BOUND_PERCENT

    @property
    def benchmark(self) -> str:
        """The row, in words."""
        return benchmark(self.key, self.limits)

    @property
    def text(self) -> str:
        """The cell, in words."""
        if self.row is None or not self.row.metrics:
            return self.status
        name = "time_to_quality_s" if self.group[3] == "quality" else "throughput_per_s"
        figure = self.row.metrics.get(name)
        shown = show(figure) if figure is not None else "null"
        if self.input_bound:
            shown += f", {INPUT_BOUND} ({show(self.row.metrics['input_wait_percent'])})"
        return shown


def benchmark(key: dict[str, Any], limits: str = "") -> str:
    """A benchmark in words, framework apart; only what is not the usual is said of devices and cache."""
    words = [str(key[name]) for name in ("workload", "variant", "phase") if key.get(name)]
    if key.get("scenario") not in (None, "", "offline"):
        words.append(str(key["scenario"]))
    if key.get("storage"):
        words += [f"to {key['storage']}", f"{key['images_per_shard']} images a shard"]
    if key.get("precision"):
        words.append(str(key["precision"]))
    if key.get("batch_per_device"):
        words.append(f"batch {key['batch_per_device']}")
    if str(key.get("devices", 1)) != "1":
        words.append(f"{key['devices']} devices")
    if key.get("cache") == "cold":
        words.append("cold cache")
    return " ".join(words) + (f" ({limits})" if limits else "")


def entry_of(row: ResultRow) -> GridEntry:
    """A result as a cell."""
    division, data, mode = row.group
    status = row.status if row.status in ("accepted", "flagged", OOM) else FAILED
    group = (division, str(row.key.get("scale", "")), data, mode)
    return GridEntry(group, row.key, status, row.why, row, row.limits_text)


@dataclass(frozen=True, slots=True)
class Grid:
    """One table. ``rows`` are benchmarks with their cells, one a framework, None where none was asked for."""

    group: tuple[str, str, str, str]
    frameworks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridEntry | None, ...]], ...]

    @property
    def title(self) -> str:
        """What the table holds."""
        division, scale, data, mode = (word or "unknown" for word in self.group)
        return f"{division} division, {scale} scale, {data} data, {mode}"

    @property
    def devices(self) -> str:
        """What the results were made on, by framework where it differs."""
        by = {name: set[str]() for name in self.frameworks}
        for _, cells in self.rows:
            for name, cell in zip(self.frameworks, cells, strict=True):
                if cell is not None and cell.device:
                    by[name].add(cell.device)
        known = {name: ", ".join(sorted(devices)) for name, devices in by.items() if devices}
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return "; ".join(f"{name}: {devices}" for name, devices in known.items())


def grids(entries: Iterable[GridEntry]) -> tuple[Grid, ...]:
    """The cells in tables of what may be compared, in the order in which they come."""
    by_group: dict[tuple[str, str, str, str], dict[tuple[Any, ...], dict[str, GridEntry]]] = {}
    for entry in entries:
        row = (*(str(entry.key.get(name, "")) for name in _KEY), entry.limits)
        by_group.setdefault(entry.group, {}).setdefault(row, {})[entry.framework] = entry
    return tuple(_grid(group, list(rows.values())) for group, rows in by_group.items())


def _grid(group: tuple[str, str, str, str], rows: Sequence[dict[str, GridEntry]]) -> Grid:
    names = tuple(dict.fromkeys(name for cells in rows for name in cells))
    lines = tuple(
        (next(iter(cells.values())).benchmark, tuple(cells.get(name) for name in names)) for cells in rows
    )
    return Grid(group, names, lines)


def to_text(tables: Sequence[Grid]) -> str:
    """The tables for a terminal, with the reasons of what is missing below each."""
    parts = []
    for table in tables:
        lines = [["benchmark", *map(safe, table.frameworks)], *_cells(table)]
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        shown = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        parts.append("\n".join([_heading(table), *shown, *_reasons(table)]) + "\n")
    return "\n".join(parts)


def to_markdown(tables: Sequence[Grid]) -> str:
    """The same for people who read Markdown."""
    parts = []
    for table in tables:
        heads = ["benchmark", *map(escaped, table.frameworks)]
        lines = [heads, ["---"] * len(heads), *([escaped(cell) for cell in line] for line in _cells(table))]
        shown = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        reasons = "\n".join(f"- {escaped(line)}" for line in _reasons(table))
        parts.append(f"## {escaped(_heading(table))}\n\n{shown}\n" + (f"\n{reasons}\n" if reasons else ""))
    return "\n".join(parts)


def to_csv(tables: Sequence[Grid]) -> str:
    """One tidy table: a row a cell, a column a variable, units in the names."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for record in _records(table):
            writer.writerow({name: harmless(value) for name, value in record.items()})
    return out.getvalue()


def to_json(tables: Sequence[Grid]) -> str:
    """Every table with every cell."""
    names = ("division", "scale", "data", "mode")
    found = [
        {**dict(zip(names, table.group, strict=True)), "cells": list(_records(table))} for table in tables
    ]
    return json.dumps({"tables": found}, indent=2, allow_nan=False) + "\n"


def _heading(table: Grid) -> str:
    return safe(f"{table.title}; on {table.devices}" if table.devices else table.title, 600)


def _cells(table: Grid) -> Iterable[list[str]]:
    for name, cells in table.rows:
        yield [safe(name), *(safe(cell.text) if cell else "-" for cell in cells)]


def _reasons(table: Grid) -> list[str]:
    """One line for each reason, naming the cells that it holds for."""
    by: dict[tuple[str, str], list[str]] = {}
    for name, cells in table.rows:
        for cell in cells:
            if cell is not None and cell.why:
                by.setdefault((cell.status, cell.why), []).append(f"{name} in {cell.framework}")
    lines = []
    for (status, why), where in by.items():
        many = f"{where[0]} and {len(where) - 1} more" if len(where) > 1 else where[0]
        lines.append(safe(f"{status}: {why} [{many}]", 600))
    return lines


def _records(table: Grid) -> Iterable[dict[str, Any]]:
    for _, cells in table.rows:
        for cell in cells:
            if cell is not None:
                yield _record(cell)


def _record(cell: GridEntry) -> dict[str, Any]:
    metrics = cell.row.metrics if cell.row is not None else {}
    values = {name: metrics[name].value if name in metrics else None for name in _FIGURES}
    return {
        **dict(zip(("division", "scale", "data", "mode"), cell.group, strict=True)),
        **{name: cell.key.get(name) for name in _KEY},
        "limits": cell.limits,
        "framework": cell.framework,
        "status": cell.status,
        "input_bound": cell.input_bound,
        "unit": cell.row.unit if cell.row is not None else None,
        **values,
        "device": cell.device or None,
        "run_id": cell.row.run_id if cell.row is not None else None,
        "why": cell.why,
    }
