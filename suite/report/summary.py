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
from suite.judge.parent import FaultError, Judge, LimitsError, beyond
from suite.record.files import LOG
from suite.record.finding import Finding
from suite.record.model import Record
from suite.record.safe import safe
from suite.report.figure import Figure
from suite.report.figures import figures, unit
from suite.report.image import NATIVE, Image, apart, image_of, limits_of
from suite.report.machine import device_name
from suite.report.markdown import to_markdown
from suite.report.precision import with_precision_loss
from suite.report.table import OOM

__all__ = [
    "ERROR",
    "Row",
    "Table",
    "collect",
    "find",
    "group",
    "harmless",
    "to_csv",
    "to_json",
    "to_markdown",
]
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
    "files_read_mb_per_s",
    "shards_written_mb_per_s",
    "files_read_bytes",
    "shards_written_bytes",
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


@dataclass(frozen=True, slots=True)
class Row:
    """One result: which table it belongs to, its status, and its figures where it has a score."""

    group: tuple[str, str, str]  # division, data, mode
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
    figures: dict[str, Figure]
    runtime: str = ""
    image: Image = NATIVE
    limits: dict[str, Any] = field(default_factory=dict)  # by the names of the settings
    limits_text: str = ""
    rules: str = ""

    @classmethod
    def of_dict(cls, value: dict[str, Any]) -> Row:
        """The row that :meth:`as_dict` made these JSON values of."""
        parts = {
            "group": tuple(value["group"]),
            "figures": {name: Figure(**figure) for name, figure in value["figures"].items()},
            "image": Image(**value["image"]),
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

    def cells(self, row: Row) -> dict[str, Any]:
        """The values of one row by column; None where there is no value."""
        division, data, mode = row.group
        found: dict[str, Any] = {
            "division": division,
            "data": data,
            "mode": mode,
            **{name: row.key.get(name) for name in _KEY},
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
    """Check every result under ``paths``, in one child of the judge, and sort them into tables.

    A log that lies in several places, such as a result and its submission, has one row: the submitted one.
    A result over which the checker itself fails has a row that says so.
    """
    rows: dict[str, Row] = {}
    with Judge() as judge:
        for folder in find(paths):
            try:
                row = judged_row(judge, folder)
            except FaultError as error:
                row = _unread(folder, ERROR, safe(error, _LONGEST_CELL))
            same = rows.get(row.digest)
            if same is None or (row.submitter and not same.submitter):
                rows[row.digest] = row
    return group(list(rows.values()))


def group(rows: Sequence[Row]) -> tuple[Table, ...]:
    """The rows in tables of one division, kind of data and mode each."""
    rows = with_precision_loss(rows)
    names = sorted({row.group for row in rows})
    return tuple(
        Table(*name, tuple(sorted((row for row in rows if row.group == name), key=_order))) for name in names
    )


def _order(row: Row) -> tuple[Any, ...]:
    return (*(str(row.key.get(name, "")) for name in _KEY), row.limits_text, row.run_id)


def _form(record: Record) -> str | None:
    """The form of the pictures that were read; of a conversion it is the framework's, and in the column."""
    return None if record.key.phase == "preprocess" else record.header["settings"].get("form")


def row_of(folder: Path) -> Row:
    """One result as a row; what cannot be read becomes a row that says so."""
    verdict = check_result(folder)
    record = verdict.record
    status, why = _status(verdict)
    submitter, system = _whose(folder)
    if record is None:
        return _unread(folder, status, why, verdict.digest, (submitter, system))
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
        runtime=header["runtime"],
        image=image_of(record),
        limits=limits_of(record),
        limits_text=apart(limits_of(record), record.header["loader"], _form(record)),
        rules=header["rules"]["version"],
    )


def judged_row(judge: Judge, folder: Path) -> Row:
    """What :func:`row_of` says in the judge's child; a row that says so where the child broke a limit."""
    try:
        return Row.of_dict(judge.ask({"ask": "row", "path": str(folder.absolute())}))
    except LimitsError as error:
        return _unread(folder, "rejected", _first_cause(beyond(str(error))))


def _unread(
    folder: Path, status: str, why: str, digest: str | None = None, whose: tuple[str, str] = ("", "")
) -> Row:
    """The row of a result of which no more can be said than its status."""
    return Row(
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
        figures={},
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
