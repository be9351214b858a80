"""Many results side by side: tables that never mix what must not be compared.

A table holds one division, one kind of data and one mode. Within it every row carries its whole key, and only
rows of equal keys, framework and devices apart, compare. A score stands in a row only if the checker accepts
the result; a rejected or failed one keeps its row and says so.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.checker import Verdict, check_result
from suite.record.files import LOG
from suite.record.safe import safe
from suite.report.figures import Figure, figures, unit
from suite.report.machine import device_name
from suite.report.table import show

_SKIP = ("registry",)
_KEY = (
    "workload",
    "framework",
    "phase",
    "scenario",
    "precision",
    "batch_per_device",
    "devices",
    "scale",
    "cache",
    "variant",
)
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
_QUALITY = ("quality", "quality_target", "time_to_quality_s")
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
# Where a cell that begins like this is opened in a spreadsheet, it is a formula.
_FORMULA = ("=", "+", "-", "@")
_LONGEST_CELL = 300
_COMPARE = "Rows compare only where the whole benchmark is the same; framework and device may differ.\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One result: which table it belongs to, its status, and its figures where it has a score."""

    group: tuple[str, str, str]  # division, data, mode
    key: dict[str, Any]
    status: str  # accepted | flagged | rejected | out_of_memory | aborted | incomplete
    why: str
    flags: int
    unit: str
    device: str
    submitter: str
    system: str
    run_id: str
    digest: str  # of the log; the folder's place where there is none
    figures: dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that may stand together, with the names of their columns."""

    division: str
    data: str
    mode: str
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """A word for file names and headings."""
        return f"{self.division}-{self.data}-{self.mode}"

    @property
    def measured(self) -> tuple[str, ...]:
        """The figures of this table's mode."""
        return (*(_QUALITY if self.mode == "quality" else _THROUGHPUT), *_COMMON)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, units included."""
        return (
            "division",
            "data",
            "mode",
            *_KEY,
            "device",
            "submitter",
            "system",
            "run_id",
            "status",
            "why",
            "flags",
            "unit",
            *self.measured,
        )

    def cells(self, row: Row) -> dict[str, Any]:
        """The values of one row by column; None where there is no value."""
        division, data, mode = row.group
        found: dict[str, Any] = {
            "division": division,
            "data": data,
            "mode": mode,
            **{name: row.key.get(name) for name in _KEY},
            "device": row.device,
            "submitter": row.submitter,
            "system": row.system,
            "run_id": row.run_id,
            "status": row.status,
            "why": row.why,
            "flags": row.flags,
            "unit": row.unit,
        }
        for name in self.measured:
            figure = row.figures.get(name)
            found[name] = figure.value if figure else None
        return found


def find(paths: Iterable[Path]) -> Iterator[Path]:
    """Folders with a log under ``paths``, in name order; links are not followed."""
    for path in paths:
        if (path / LOG).is_file():
            yield path
        elif path.is_dir() and not path.is_symlink():
            below = (child for child in path.iterdir() if child.is_dir() and not child.is_symlink())
            yield from find(sorted(child for child in below if child.name not in _SKIP))


def collect(paths: Iterable[Path]) -> tuple[Table, ...]:
    """Check every result under ``paths`` and sort them into tables.

    A log that lies in several places, such as a result and its submission, has one row: the submitted one.
    """
    rows: dict[str, Row] = {}
    for folder in find(paths):
        row = row_of(folder)
        same = rows.get(row.digest)
        if same is None or (row.submitter and not same.submitter):
            rows[row.digest] = row
    return group(list(rows.values()))


def group(rows: Sequence[Row]) -> tuple[Table, ...]:
    """The rows in tables of one division, kind of data and mode each."""
    names = sorted({row.group for row in rows})
    return tuple(
        Table(*name, tuple(sorted((row for row in rows if row.group == name), key=_order))) for name in names
    )


def _order(row: Row) -> tuple[Any, ...]:
    return (*(str(row.key.get(name, "")) for name in _KEY), row.run_id)


def row_of(folder: Path) -> Row:
    """One result as a row; what cannot be read becomes a row that says so."""
    verdict = check_result(folder)
    record = verdict.record
    status, why = _status(verdict)
    submitter, system = _whose(folder)
    if record is None:
        nothing: dict[str, Any] = {}
        return Row(
            ("unknown", "unknown", "unknown"),
            nothing,
            status,
            why,
            0,
            "",
            "",
            submitter,
            system,
            safe(folder.name),
            verdict.digest or str(folder),
            {},
        )
    header = record.header
    key = dict(header["key"])
    key["batch_per_device"] = key.pop("batch")
    return Row(
        group=(header["division"], key.pop("data"), header["mode"]),
        key=key,
        status=status,
        why=why,
        flags=len(verdict.flags),
        unit=unit(record),
        device=device_name(record),
        submitter=submitter,
        system=system,
        run_id=header["run_id"],
        digest=record.digest,
        figures=figures(record) if verdict.scored else {},
    )


def _status(verdict: Verdict) -> tuple[str, str]:
    """A result's status and, where it has no score, the first cause."""
    record = verdict.record
    if verdict.scored:
        return ("flagged" if verdict.flags else "accepted"), ""
    if record is not None and record.aborts:
        memory = verdict.accepted and record.outcome == "out_of_memory"
        return ("out_of_memory" if memory else "aborted"), safe(verdict.reached)
    if record is not None and record.partial:
        return "incomplete", safe(verdict.reached)
    first = verdict.rejections[0]
    return "rejected", safe(f"{first.rule}: expected {first.expected}, found {first.actual}")


def _whose(folder: Path) -> tuple[str, str]:
    """Submitter and system as the description beside the log states them; empty without one."""
    from suite.report.system import SystemProblem, parse

    try:
        value = parse((folder / "system.json").read_bytes())
    except (OSError, SystemProblem):
        return "", ""
    return safe(str(value.get("submitter", ""))), safe(str(value.get("system_name", "")))


def to_csv(table: Table) -> str:
    """One tidy table: a row a result, a column a variable, units in the names, empty cells for nulls."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        cells = table.cells(row)
        writer.writerow([harmless(cells[name]) for name in table.columns])
    return out.getvalue()


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula and no terminal for a command; numbers stay numbers."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return cell
    text = safe(cell, _LONGEST_CELL)
    return "'" + text if text.startswith(_FORMULA) else text


def to_json(tables: Sequence[Table]) -> str:
    """All tables with every figure, its unit, and the reason of each missing one."""
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
                                name: figure.reason for name, figure in row.figures.items() if figure.reason
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


def to_markdown(tables: Sequence[Table]) -> str:
    """A heading and a table for each group, for people."""
    parts = []
    for table in tables:
        parts.append(f"## {table.division} division, {table.data} data, {table.mode} mode\n")
        heads, rows = _markdown_rows(table)
        lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(" --- " for _ in heads) + "|"]
        lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join([_COMPARE, *parts]) if parts else "No results found.\n"


def _markdown_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    heads = ["benchmark", "framework", "device"]
    names: tuple[str, ...]
    if table.mode == "quality":
        heads += ["quality", "target", "time to quality"]
        names = ("quality", "quality_target", "time_to_quality_s")
    else:
        heads += ["throughput", "95 % interval", "CV", "step p50", "loss", "GPU use"]
        names = ("cv_percent", "step_p50_ms")
    heads += ["host memory", "device memory", "status", "run"]
    rows = []
    for row in table.rows:
        cells = [_benchmark(row), str(row.key.get("framework", "")), row.device]
        if table.mode == "quality":
            cells += [_shown(row, name) for name in names]
        else:
            interval = f"{_shown(row, 'throughput_low_per_s')} - {_shown(row, 'throughput_high_per_s')}"
            loss = f"{_shown(row, 'loss_first')} → {_shown(row, 'loss_last')}"
            cells += [
                _shown(row, "throughput_per_s"),
                interval if row.figures else "",
                *(_shown(row, name) for name in names),
                loss if "loss_first" in row.figures else "",
                _shown(row, "gpu_utilisation_percent"),
            ]
        whose = f"{row.submitter}: {row.run_id}" if row.submitter else row.run_id
        status = row.status.replace("_", " ") + (f" ({_count(row.flags, 'flag')})" if row.flags else "")
        cells += [
            _shown(row, "peak_host_memory_bytes"),
            _shown(row, "peak_device_memory_bytes"),
            f"{status}: {row.why}" if row.why else status,
            whose,
        ]
        rows.append(cells)
    return heads, rows


def _benchmark(row: Row) -> str:
    """The key of a row in words, framework and data apart: they have places of their own."""
    names = ("workload", "variant", "phase", "scenario", "precision", "scale", "cache")
    words = [str(row.key[name]) for name in names if row.key.get(name)]
    if row.key:
        words += [f"batch {row.key['batch_per_device']}", _count(row.key["devices"], "device")]
    return " ".join(words)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _shown(row: Row, name: str) -> str:
    figure = row.figures.get(name)
    return show(figure) if figure else ""


def _cell(text: str) -> str:
    """Text that cannot leave its cell or become markup."""
    escaped = html.escape(safe(text), quote=False)
    for mark in "\\|`*_[]":
        escaped = escaped.replace(mark, "\\" + mark)
    return escaped
