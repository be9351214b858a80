"""The table of a sweep: a row per cell with its axes and outcome, published figures beside the measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from suite.compare.journal import differing
from suite.log.safe import safe
from suite.log.units import count, significant
from suite.report.cells import aligned, escaped, markdown_table
from suite.report.grid import OUTCOMES, GridEntry
from suite.report.summary import harmless

PUBLISHED = "published"  # in the head of a column whose figures are another party's


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One cell: its options, its entry, and the figures that a study published, by platform."""

    options: Mapping[str, str]
    entry: GridEntry
    published: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drift:
    """Throughputs of the reference cell in the order of their measurement, and their relative changes."""

    throughputs: tuple[float, ...]  # units per second
    unit: str
    reason: str  # why nothing is known about drift; empty where something is

    @property
    def change(self) -> float | None:
        """The last throughput in relation to the first, minus one."""
        return None if self.reason else self.throughputs[-1] / self.throughputs[0] - 1

    @property
    def spread(self) -> float | None:
        """The range of the throughputs in relation to the first."""
        if self.reason:
            return None
        return (max(self.throughputs) - min(self.throughputs)) / self.throughputs[0]


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The rows, the measurements of the reference cell in their order, and what a study concluded."""

    rows: tuple[SweepRow, ...]
    references: tuple[GridEntry, ...] = ()
    findings: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    seed: int = 0
    planned_axes: tuple[str, ...] = ()  # of a sweep that was interrupted: its rows may share their values

    @property
    def axes(self) -> tuple[str, ...]:
        """The options that differ between the rows, and those that were planned to, in their order."""
        return differing([row.options for row in self.rows], self.planned_axes)

    @property
    def common(self) -> str:
        """The options that all rows share."""
        axes = self.axes
        return " ".join(f"{name}={value}" for name, value in self.rows[0].options.items() if name not in axes)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that published figures are of."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.published))

    @property
    def drift(self) -> Drift:
        """What the measurements of the reference cell show."""
        metrics = [one.row.metrics.get("throughput_per_s") for one in self.references if one.row is not None]
        values = tuple(one.value for one in metrics if one is not None and one.value is not None)
        unit = next((one.row.unit for one in self.references if one.row is not None), "")
        if len(values) >= 2:
            return Drift(values, unit, "")
        failed = [one.outcome for one in self.references if one.outcome != OUTCOMES["accepted"]]
        if failed:
            hint = "name first in the grid the values that surely run"
            return Drift(values, unit, f"{failed[-1]}, so that it shows no drift: {hint}")
        found = count(len(values), "throughput")
        return Drift(values, unit, f"{found}; drift needs two, as in a sweep of more than ten cells")

    def counts(self) -> str:
        """How many cells have each outcome."""
        found = [row.entry.outcome for row in self.rows]
        kinds = dict.fromkeys(OUTCOMES.values())
        return ", ".join(f"{found.count(kind)} {kind}" for kind in kinds if kind in found)


def to_text(table: SweepTable) -> str:
    """The table for a terminal."""
    lines = [heading(table), *aligned([_heads(table), *_cells(table)]), *_footnotes(table)]
    return "\n".join(lines) + "\n"


def to_markdown(table: SweepTable) -> str:
    """The table as Markdown."""
    lines = [f"## {escaped(heading(table), 600)}", ""]
    lines += markdown_table([escaped(head) for head in _heads(table)], _cells(table))
    return "\n".join([*lines, "", *(f"- {escaped(line, 600)}" for line in _footnotes(table))]) + "\n"


def to_csv(table: SweepTable) -> str:
    """CSV: one row per cell, units in the column names."""
    records = [_record(table, row) for row in table.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: harmless(value) for name, value in record.items()})
    return out.getvalue()


def to_json(table: SweepTable) -> str:
    """JSON: every cell, and the reference cell."""
    drift = table.drift
    value = {
        "seed": table.seed,
        "cells": [
            {"options": dict(row.options), **_measured(row), PUBLISHED: dict(row.published)}
            for row in table.rows
        ],
        "reference": {
            "throughput_per_s": list(drift.throughputs),
            "unit": drift.unit or None,
            "change": drift.change,
            "spread": drift.spread,
            "reason": drift.reason or None,
        },
        "findings": list(table.findings),
        "sources": list(table.sources),
    }
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


WRITERS: Mapping[str, Callable[[SweepTable], str]] = {
    "text": to_text,
    "md": to_markdown,
    "csv": to_csv,
    "json": to_json,
}


def heading(table: SweepTable) -> str:
    """What all cells share, how many have each outcome, and on which device."""
    devices = dict.fromkeys(row.entry.device for row in table.rows if row.entry.device)
    on = f"; on {', '.join(devices)}" if devices else ""
    common = f"{table.common}; " if table.common else ""
    return safe(f"{common}{count(len(table.rows), 'cell')}: {table.counts()}{on}", 600)


def _heads(table: SweepTable) -> list[str]:
    return [*table.axes, "outcome", "throughput", *(f"{PUBLISHED}: {one}" for one in table.platforms)]


def _cells(table: SweepTable) -> list[list[str]]:
    return [
        [
            *(row.options.get(name, "-") for name in table.axes),
            row.entry.outcome,
            row.entry.text if row.entry.outcome == "ok" else "-",
            *(row.published.get(name, "-") for name in table.platforms),
        ]
        for row in table.rows
    ]


def _footnotes(table: SweepTable) -> list[str]:
    """The causes of missing throughputs, the drift, and what the study concluded."""
    causes: dict[tuple[str, str], list[str]] = {}
    for row in table.rows:
        if row.entry.outcome != "ok" and row.entry.why:
            cell = " ".join(f"{name}={row.options[name]}" for name in table.axes if name in row.options)
            causes.setdefault((row.entry.outcome, row.entry.why), []).append(cell)
    lines = []
    for (outcome, why), cells in causes.items():
        named = cells[0] + (f" and {len(cells) - 1} more" if len(cells) > 1 else "")
        lines.append(safe(f"{outcome}: {why}" + (f" [{named}]" if named else ""), 600))
    return lines + notes(table)


def notes(table: SweepTable) -> list[str]:
    """The drift, and what the study concluded."""
    lines = [_drift(table)] if table.references else []
    lines += [safe(f"{PUBLISHED}: {text}", 600) for text in table.findings]
    if table.platforms or table.findings:
        lines.append(
            safe(f"{PUBLISHED} figures are from {', '.join(table.sources)}; they are no results", 600)
        )
    return lines


def _drift(table: SweepTable) -> str:
    drift = table.drift
    if drift.change is None or drift.spread is None:
        return f"reference cell: {drift.reason}"
    values = ", ".join(significant(value) for value in drift.throughputs)
    return (
        f"reference cell, in order: {values} {drift.unit}/s; {100 * drift.change:+.1f} % from first to last, "
        f"range {100 * drift.spread:.1f} %"
    )


def _measured(row: SweepRow) -> dict[str, Any]:
    entry = row.entry
    metrics = entry.row.metrics if entry.row is not None else {}

    def value(name: str) -> float | None:
        return metrics[name].value if name in metrics else None

    return {
        "outcome": entry.outcome,
        "reason": entry.why or None,
        "throughput_per_s": value("throughput_per_s"),
        "throughput_low_per_s": value("throughput_low_per_s"),
        "throughput_high_per_s": value("throughput_high_per_s"),
        "unit": entry.row.unit if entry.row is not None else None,
        "peak_host_memory_bytes": value("peak_host_memory_bytes"),
        "peak_device_memory_bytes": value("peak_device_memory_bytes"),
        "input_wait_percent": value("input_wait_percent"),
        "device": entry.device or None,
        "run_id": entry.row.run_id if entry.row is not None else None,
    }


def _record(table: SweepTable, row: SweepRow) -> dict[str, Any]:
    names = dict.fromkeys(name for one in table.rows for name in one.options)
    published = {f"{PUBLISHED}: {name}": row.published.get(name) for name in table.platforms}
    return {**{name: row.options.get(name) for name in names}, **_measured(row), **published}
