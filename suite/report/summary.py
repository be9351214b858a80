"""Many results as data: tables of results that may be compared, CSV and JSON.

A table holds one division, one kind of data and one mode; CSV is one table of all results, with these three
as columns. Every row carries its whole key and its settings; only rows of equal key and settings compare,
framework and devices apart. A row has a score only if the checker accepts the result; a rejected or failed
result keeps its row, with the status and the cause.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.compare.input_bound import input_bounds
from suite.compare.result_row import ResultRow
from suite.contract import CONVERSION, LOAD
from suite.log.safe import safe
from suite.metrics.image import LIMITS
from suite.report.precision import with_precision_loss

if TYPE_CHECKING:
    from suite.compare.repeats import RepeatMetrics
    from suite.metrics.metric import Metric

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
    "energy_devices_j_per_unit",
    "energy_node_j_per_unit",
    "gpu_throttled_percent",
    "input_wait_percent",
    "setup_s",
    "compile_s",
)
_CONVERSION_KEY = ("workload", "framework", "storage", "images_per_shard", "scale", "cache", "encoding")
_CONVERSION_METRICS = (
    *_THROUGHPUT[:4],
    *("files_read_mb_per_s", "shards_written_mb_per_s", "files_read_bytes", "shards_written_bytes"),
)
_LOAD_METRICS = (
    *_THROUGHPUT[:4],
    *("files_read_mb_per_s", "batches_delivered_mb_per_s", "files_read_bytes", "batches_delivered_bytes"),
)
_OF_MODE = {"quality": _QUALITY, CONVERSION: _CONVERSION_METRICS, LOAD: _LOAD_METRICS}
# The metrics of CSV: of a mode only where a result has this mode, so that no column is always empty.
_CSV_OF_MODE = {
    "throughput": (*_THROUGHPUT[:4], "step_mean_ms", *_THROUGHPUT[4:]),
    "quality": _QUALITY,
    CONVERSION: _CONVERSION_METRICS,
    LOAD: _LOAD_METRICS,
}
_CSV_COMMON = (
    *(*_COMMON, "cpu_host_cores", "cpu_throttled_percent", "gpu_sm_clock_mhz", "gpu_temperature_c"),
)
_OF_A_RUN = ("throughput_low_per_s", "throughput_high_per_s", "cv_percent")  # that a single repeat has not
_SHA256 = 64  # characters
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
        return (*_OF_MODE.get(self.mode, _THROUGHPUT), *_COMMON)

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
    """Numbers by value, texts by letter: the key, then the settings."""
    key = (_rank(row.key.get(name)) for name in (*_KEY, *_CONVERSION_KEY))
    settings = tuple((name, _rank(value)) for name, value in sorted(row.settings.items()))
    return (*key, row.limits_text, settings, row.run_id)


def _rank(value: Any) -> tuple[int, float, str]:
    return (0, value, "") if isinstance(value, int) else (1, 0, str(value or ""))


def to_csv(tables: Sequence[Table]) -> str:
    """CSV, one table: one row per result, one column per variable, units in the names, empty cells for nulls.

    A number is a number in every row of its column. The columns of the settings are those that a log has.
    """
    rows = [row for table in tables for row in table.rows]
    settings = _setting_columns(rows)
    names = _metric_columns(rows)
    return _csv(_cells_of(row, settings) | _values(row.metrics, names) for row in rows)


def to_csv_of_repeats(repeats: Iterable[tuple[ResultRow, Sequence[RepeatMetrics]]]) -> str:
    """CSV, one table: one row per repeat of each result with a score; columns as in :func:`to_csv`."""
    known = list(repeats)
    rows = [row for row, _ in known]
    settings = _setting_columns(rows)
    names = [name for name in _metric_columns(rows) if name not in _OF_A_RUN]
    return _csv(
        _cells_of(row, settings) | {"repeat": one.repeat, "units": one.units} | _values(one.metrics, names)
        for row, some in known
        for one in some
    )


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, row in enumerate(rows):
        if number == 0:
            writer.writerow(map(harmless, row))
        writer.writerow(map(harmless, row.values()))
    return out.getvalue()


def _setting_columns(rows: Sequence[ResultRow]) -> list[str]:
    """The names of the settings of all rows that no other column states."""
    stated = {*_KEY, *_CONVERSION_KEY, *LIMITS, "runtime", "device"}
    return sorted({name for row in rows for name in row.settings} - stated)


def _cells_of(row: ResultRow, settings: Sequence[str]) -> dict[str, Any]:
    """What a row of CSV states beside its metrics, by column."""
    division, data, mode = row.group
    storage = row.key.get("storage", row.settings.get("storage"))
    return {
        "run_id": row.run_id,
        "started": row.started or None,
        "status": row.status,
        "why": row.why,
        "flags": row.flags,
        "division": division,
        "data": data,
        "mode": mode,
        **{name: row.key.get(name) for name in _KEY},
        "storage": storage,
        "images_per_shard": row.key.get("images_per_shard"),
        **{name: row.settings.get(name) for name in settings},
        **{f"limit_{name}": row.limits.get(name) for name in LIMITS},
        "device": row.device,
        "device_kind": row.settings.get("device"),
        "runtime": row.runtime,
        "image": row.image.name,
        "image_closed_ready": row.image.closed_ready,
        "submitter": row.submitter,
        "system": row.system,
        "rules": row.rules,
        "sha256": row.digest if len(row.digest) == _SHA256 else None,
        "ranks": row.ranks,
        "unit": row.unit,
    }


def _metric_columns(rows: Sequence[ResultRow]) -> list[str]:
    modes = {row.group[2] for row in rows}
    of_modes = [name for mode, names in _CSV_OF_MODE.items() if mode in modes for name in names]
    return list(dict.fromkeys((*of_modes, *_CSV_COMMON)))


def _values(metrics: Mapping[str, Metric], names: Iterable[str]) -> dict[str, Any]:
    return {name: metrics[name].value if name in metrics else None for name in names}


def harmless(cell: Any) -> Any:
    """The cell, escaped so that no spreadsheet or terminal interprets it; numbers stay numbers."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return cell
    text = safe(cell, _LONGEST_CELL)
    return "'" + text if text.startswith(_FORMULA_STARTS) else text


def to_json(tables: Sequence[Table]) -> str:
    """JSON: the input bounds, and all tables with every metric, its unit, and why one is missing."""
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
            ],
            "input_bounds": [
                one.as_dict() for one in input_bounds(row for table in tables for row in table.rows)
            ],
        },
        indent=2,
        allow_nan=False,
    )
