"""Tables of many results, as CSV and JSON: results that must not be compared are never in one table.

A table holds one division, one kind of data and one mode. Every row carries its whole key and its limits;
only rows of equal key and limits compare, framework and devices apart. A row has a score only if the checker
accepts the result; a rejected or failed result keeps its row, with the status and the cause.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suite.compare.result_row import ResultRow
from suite.contract import CONVERSION
from suite.log.safe import safe
from suite.report.precision import with_precision_loss

_KEY = (
    "workload",
    "framework",
    "phase",
    "scenario",
    "precision",
    "batch_per_device",
    "devices",
    "nodes",
    "strategy",
    "scale",
    "cache",
    "variant",
)
_LIMITS = ("cpus", "cpuset", "memory_bytes")
_THROUGHPUT = (
    "throughput_per_s",
    "throughput_low_per_s",
    "throughput_high_per_s",
    "cv_percent",
    "step_p50_ms",
    "step_p90_ms",
    "step_p99_ms",
    "loss_first",
    "loss_last",
)
_QUALITY = ("quality", "quality_target", "quality_less_fp32", "time_to_quality_s")
_COMMON = (
    "peak_host_memory_bytes",
    "peak_device_memory_bytes",
    "cpu_worker_cores",
    "gpu_utilisation_percent",
    "gpu_power_w",
    "gpu_throttled_percent",
    "input_wait_percent",
    "setup_s",
    "compile_s",
)
_CONVERSION_KEY = ("workload", "framework", "storage", "images_per_shard", "scale", "cache")
_CONVERSION_METRICS = (
    *_THROUGHPUT[:4],
    *("files_read_mb_per_s", "shards_written_mb_per_s", "files_read_bytes", "shards_written_bytes"),
)
_FORMULA_STARTS = ("=", "+", "-", "@")  # a spreadsheet evaluates a cell that begins with one
_LONGEST_CELL = 300


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one division, kind of data and mode, with the names of their columns."""

    division: str
    data: str
    mode: str
    rows: tuple[ResultRow, ...]

    @property
    def name(self) -> str:
        """The table's name in file names and headings."""
        return f"{self.division}-{self.data}-{self.mode}"

    @property
    def metric_columns(self) -> tuple[str, ...]:
        """The metrics of this table's mode."""
        return (*{"quality": _QUALITY, CONVERSION: _CONVERSION_METRICS}.get(self.mode, _THROUGHPUT), *_COMMON)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that state what was measured."""
        return _CONVERSION_KEY if self.mode == CONVERSION else _KEY

    def cells(self, row: ResultRow) -> dict[str, Any]:
        """The values of one row by column, in the order of the columns; None where there is no value."""
        division, data, mode = row.group
        cells: dict[str, Any] = {
            "division": division,
            "data": data,
            "mode": mode,
            **{name: row.key.get(name) for name in self.key_columns},
            "device": row.device,
            "runtime": row.runtime,
            "image": row.image.name,
            "image_closed_ready": row.image.closed_ready,
            **{f"limit_{name}": row.limits.get(name) for name in _LIMITS},
            "submitter": row.submitter,
            "system": row.system,
            "rules": row.rules,
            "run_id": row.run_id,
            "status": row.status,
            "why": row.why,
            "flags": row.flags,
            "ranks": row.ranks,
            "unit": row.unit,
        }
        for name in self.metric_columns:
            metric = row.metrics.get(name)
            cells[name] = metric.value if metric else None
        return cells


def tables_of(rows: Sequence[ResultRow]) -> tuple[Table, ...]:
    """The rows, sorted into tables of one division, kind of data and mode each."""
    rows = with_precision_loss(rows)
    names = sorted({row.group for row in rows})
    return tuple(
        Table(*name, tuple(sorted((row for row in rows if row.group == name), key=_order))) for name in names
    )


def _order(row: ResultRow) -> tuple[Any, ...]:
    return (*(str(row.key.get(name, "")) for name in (*_KEY, *_CONVERSION_KEY)), row.limits_text, row.run_id)


def to_csv(table: Table) -> str:
    """CSV: one row per result, one column per variable, units in the column names, empty cells for nulls."""
    rows = [table.cells(row) for row in table.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless(cell) for name, cell in row.items()} for row in rows)
    return out.getvalue()


def harmless(cell: Any) -> Any:
    """The cell, escaped so that no spreadsheet or terminal interprets it; numbers stay numbers."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return cell
    text = safe(cell, _LONGEST_CELL)
    return "'" + text if text.startswith(_FORMULA_STARTS) else text


def to_json(tables: Sequence[Table]) -> str:
    """JSON: all tables with every metric, its unit, and the reason for each missing one."""
    return json.dumps(
        {
            "tables": [
                {
                    "division": table.division,
                    "data": table.data,
                    "mode": table.mode,
                    "results": [
                        table.cells(row)
                        | {
                            "reasons": {
                                name: metric.reason for name, metric in row.metrics.items() if metric.reason
                            }
                        }
                        for row in table.rows
                    ],
                }
                for table in tables
            ]
        },
        indent=2,
        allow_nan=False,
    )
