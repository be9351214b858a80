"""Many results side by side: tables that never mix what must not be compared.

A table holds one division, one kind of data and one mode. Within it every row carries its whole key and its
limits, and only rows of equal ones, framework and devices apart, compare. A score stands in a row only if the
checker accepts the result; a rejected or failed one keeps its row and says so.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from suite.checker import Verdict, check_result
from suite.checker.sandboxed import limit_finding
from suite.contract import CONVERSION
from suite.log.files import LOG
from suite.log.finding import Finding
from suite.log.model import Record
from suite.log.safe import safe
from suite.metrics.image import NATIVE, ImageSummary, conditions_text, image_of, limits_of
from suite.metrics.machine import device_name
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of, unit
from suite.report.markdown import to_markdown
from suite.report.precision import with_precision_loss
from suite.report.table import OOM
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError

__all__ = [
    "ERROR",
    "ResultRow",
    "Table",
    "collect",
    "find",
    "group",
    "harmless",
    "to_csv",
    "to_json",
    "to_markdown",
]
ROW_TASKS = "suite.report.tasks"
ERROR = "error"  # of a row: the checker itself failed over the result, which has no verdict
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
_LIMITS = ("cpus", "cpuset", "memory_bytes")
_PLACE = ("runtime", "image", "image_closed_ready", *(f"limit_{name}" for name in _LIMITS))
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
# Where a cell that begins like this is opened in a spreadsheet, it is a formula.
_OF_CONVERSION = ("workload", "framework", "storage", "images_per_shard", "scale", "cache")
_CONVERSION = (
    *_THROUGHPUT[:4],
    *("files_read_mb_per_s", "shards_written_mb_per_s", "files_read_bytes", "shards_written_bytes"),
)
_FORMULA = ("=", "+", "-", "@")
_LONGEST_CELL = 300


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result: which table it belongs to, its status, and its metrics where it has a score."""

    group: tuple[str, str, str]  # division, data, mode; of a conversion "conversion" stands for the mode
    key: dict[str, Any]
    status: str  # accepted | flagged | rejected | OOM | aborted | incomplete | error
    why: str
    flags: int
    unit: str
    device: str
    submitter: str
    system: str
    run_id: str
    digest: str  # of the log; the folder's place where there is none
    metrics: dict[str, Metric]
    runtime: str = ""
    image: ImageSummary = NATIVE
    limits: dict[str, Any] = field(default_factory=dict)  # by the names of the settings
    limits_text: str = ""
    rules: str = ""

    @classmethod
    def of_dict(cls, value: dict[str, Any]) -> ResultRow:
        """The row that :meth:`as_dict` made these JSON values of."""
        parts = {
            "group": tuple(value["group"]),
            "metrics": {name: Metric(**figure) for name, figure in value["metrics"].items()},
            "image": ImageSummary(**value["image"]),
        }
        return cls(**(value | parts))

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON values."""
        return asdict(self)

    @property
    def score(self) -> str:
        """What stands in the place of a missing score."""
        return OOM if self.status == OOM else ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that may stand together, with the names of their columns."""

    division: str
    data: str
    mode: str
    rows: tuple[ResultRow, ...]

    @property
    def name(self) -> str:
        """A word for file names and headings."""
        return f"{self.division}-{self.data}-{self.mode}"

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics of this table's mode."""
        return (*{"quality": _QUALITY, CONVERSION: _CONVERSION}.get(self.mode, _THROUGHPUT), *_COMMON)

    @property
    def keyed(self) -> tuple[str, ...]:
        """The columns that say what was measured."""
        return _OF_CONVERSION if self.mode == CONVERSION else _KEY

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, units included."""
        return (
            "division",
            "data",
            "mode",
            *self.keyed,
            "device",
            *_PLACE,
            "submitter",
            "system",
            "rules",
            "run_id",
            "status",
            "why",
            "flags",
            "unit",
            *self.measured,
        )

    def cells(self, row: ResultRow) -> dict[str, Any]:
        """The values of one row by column; None where there is no value."""
        division, data, mode = row.group
        found: dict[str, Any] = {
            "division": division,
            "data": data,
            "mode": mode,
            **{name: row.key.get(name) for name in self.keyed},
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
            "unit": row.unit,
        }
        for name in self.measured:
            figure = row.metrics.get(name)
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
    """Check every result under ``paths``, in one sandbox, and sort them into tables.

    A log that lies in several places, such as a result and its submission, has one row: the submitted one.
    A result over which the checker itself fails has a row that says so.
    """
    rows: dict[str, ResultRow] = {}
    with Sandbox(ROW_TASKS) as sandbox:
        for folder in find(paths):
            try:
                row = checked_row(sandbox, folder)
            except TaskError as error:
                row = _unread(folder, ERROR, safe(error, _LONGEST_CELL))
            same = rows.get(row.digest)
            if same is None or (row.submitter and not same.submitter):
                rows[row.digest] = row
    return group(list(rows.values()))


def group(rows: Sequence[ResultRow]) -> tuple[Table, ...]:
    """The rows in tables of one division, kind of data and mode each."""
    rows = with_precision_loss(rows)
    names = sorted({row.group for row in rows})
    return tuple(
        Table(*name, tuple(sorted((row for row in rows if row.group == name), key=_order))) for name in names
    )


def _order(row: ResultRow) -> tuple[Any, ...]:
    return (*(str(row.key.get(name, "")) for name in (*_KEY, *_OF_CONVERSION)), row.limits_text, row.run_id)


def _place_of(record: Record) -> tuple[tuple[str, str, str], dict[str, Any], str]:
    """The table of a result, the columns that say what was measured, and what sets its row apart."""
    limits = limits_of(record)
    if (made := record.conversion) is not None:
        key = asdict(made)
        key["images_per_shard"] = key.pop("batch")
        return (record.division, "real", CONVERSION), key, conditions_text(limits, "native", None)
    key = asdict(record.key)
    key["batch_per_device"] = key.pop("batch")
    text = conditions_text(limits, record.header["loader"], record.header["settings"].get("storage"))
    return (record.division, key.pop("data"), record.mode), key, text


def row_of(folder: Path) -> ResultRow:
    """One result as a row; what cannot be read becomes a row that says so."""
    verdict = check_result(folder)
    record = verdict.record
    status, why = _status(verdict)
    submitter, system = _whose(folder)
    if record is None:
        return _unread(folder, status, why, verdict.digest, (submitter, system))
    header = record.header
    group, key, limits_text = _place_of(record)
    return ResultRow(
        group=group,
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
        metrics=metrics_of(record) if verdict.scored else {},
        runtime=header["runtime"],
        image=image_of(record),
        limits=limits_of(record),
        limits_text=limits_text,
        rules=header["rules"]["version"],
    )


def checked_row(sandbox: Sandbox, folder: Path) -> ResultRow:
    """What :func:`row_of` returns in the sandbox; a row with the reason where a limit ended it."""
    try:
        return ResultRow.of_dict(sandbox.run("row", path=folder))
    except LimitsError as error:
        return _unread(folder, "rejected", _first_cause(limit_finding(error)))


def _unread(
    folder: Path, status: str, why: str, digest: str | None = None, whose: tuple[str, str] = ("", "")
) -> ResultRow:
    """The row of a result of which no more can be said than its status."""
    return ResultRow(
        group=("unknown", "unknown", "unknown"),
        key={},
        status=status,
        why=why,
        flags=0,
        unit="",
        device="",
        submitter=whose[0],
        system=whose[1],
        run_id=safe(folder.name),
        digest=digest or str(folder),
        metrics={},
    )


def _status(verdict: Verdict) -> tuple[str, str]:
    """A result's status and, where it has no score, the first cause."""
    record = verdict.record
    if verdict.scored:
        return ("flagged" if verdict.flags else "accepted"), ""
    if record is not None and record.aborts:
        memory = verdict.accepted and record.outcome == "out_of_memory"
        return (OOM if memory else "aborted"), safe(verdict.reached)
    if record is not None and record.partial:
        return "incomplete", safe(verdict.reached)
    return "rejected", _first_cause(verdict.rejections[0])


def _first_cause(found: Finding) -> str:
    return safe(f"{found.rule}: expected {found.expected}, found {found.actual}")


def _whose(folder: Path) -> tuple[str, str]:
    """Submitter and system as the description beside the log states them; empty without one."""
    from suite.submissions.system import SystemProblem, parse

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
                                name: figure.reason for name, figure in row.metrics.items() if figure.reason
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
