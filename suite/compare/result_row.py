"""One result as a row of a summary: judged by the checker, then reduced to what tables and figures show.

:mod:`suite.report` renders such rows and decides nothing about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from suite.checker import Verdict, check_result
from suite.checker.sandboxed import limit_finding
from suite.compare.comparable import COMPARE_TASKS, SETTINGS, facts_by_group
from suite.contract import CONVERSION
from suite.log.files import LOG, read_in
from suite.log.finding import Finding, RecordError
from suite.log.model import Record
from suite.log.safe import safe
from suite.log.strict import StrictError, decode
from suite.metrics.image import NATIVE, ImageSummary, conditions_text, counts_of, image_of, limits_of
from suite.metrics.machine import device_name, facts, identity
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of, unit
from suite.metrics.slow_rank import slow_rank_text
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError
from suite.submissions.registry.model import Registry, Withdrawal
from suite.submissions.registry.withdrawals import withdrawal_of
from suite.submissions.system import MAX_BYTES

OOM = "OOM"  # the status of a result that ran out of memory, shown instead of a score
WITHDRAWN = "withdrawn"  # by its submitter: shown without a score, as a rejected one
ERROR = "error"  # the status of a result over which the checker itself failed: it has no verdict
_SKIPPED_FOLDERS = ("registry",)
_LONGEST = 300  # characters of a fault of the checker
_LONGEST_REASON = 600  # characters of a withdrawal


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result: which table it belongs to, its status, and its metrics where it has a score."""

    group: tuple[str, str, str]  # division, data, mode; without a model the kind of job instead of the mode
    key: dict[str, Any]
    status: str  # accepted | flagged | rejected | withdrawn | OOM | aborted | incomplete | error
    why: str
    flags: int
    unit: str
    device: str
    submitter: str
    system: str
    run_id: str
    digest: str  # of the log; the folder's path where there is none
    metrics: dict[str, Metric]
    runtime: str = ""
    image: ImageSummary = NATIVE
    limits: dict[str, Any] = field(default_factory=dict)  # by the names of the settings
    limits_text: str = ""
    rules: str = ""
    ranks: str = ""  # which rank is slow; empty where ranks exchange nothing
    started: str = ""  # UTC, ISO 8601
    settings: dict[str, Any] = field(default_factory=dict)  # beside the key: threads, loader, limits …
    machine: dict[str, Any] = field(
        default_factory=dict
    )  # what identifies it by suite.metrics.machine.identity

    @classmethod
    def of_dict(cls, value: dict[str, Any]) -> ResultRow:
        """The row from the JSON values of :meth:`as_dict`."""
        parts = {
            "group": tuple(value["group"]),
            "metrics": {name: Metric(**metric) for name, metric in value["metrics"].items()},
            "image": ImageSummary(**value["image"]),
        }
        return cls(**(value | parts))

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON values."""
        return asdict(self)

    @property
    def missing_score(self) -> str:
        """What a table shows instead of a missing score."""
        return OOM if self.status == OOM else ""


def result_folders(paths: Iterable[Path]) -> Iterator[Path]:
    """Folders with a log under ``paths``, in name order; links are not followed."""
    for path in paths:
        if (path / LOG).is_file():
            yield path
        elif path.is_dir() and not path.is_symlink():
            below = (child for child in path.iterdir() if child.is_dir() and not child.is_symlink())
            inner = (child for child in below if child.name not in _SKIPPED_FOLDERS)
            yield from result_folders(sorted(inner, key=lambda child: child.name))


def checked_rows(paths: Iterable[Path]) -> list[ResultRow]:
    """The rows of :func:`checked_folders`."""
    return list(checked_folders(paths).values())


def checked_folders(paths: Iterable[Path]) -> dict[Path, ResultRow]:
    """Check every result under ``paths`` in one sandbox; the folder and the row of each distinct log.

    A log that lies in several folders, such as a result and its submission, has one row: the submitted one.
    A result over which the checker itself fails has a row with the status ``error``.
    """
    rows: dict[str, tuple[Path, ResultRow]] = {}
    with Sandbox(COMPARE_TASKS) as sandbox:
        for folder in result_folders(paths):
            try:
                row = checked_row(sandbox, folder)
            except TaskError as error:
                row = _row_without_record(folder, ERROR, safe(error, _LONGEST))
            earlier = rows.get(row.digest)
            if earlier is None or (row.submitter and not earlier[1].submitter):
                rows[row.digest] = folder, row
    return dict(rows.values())


def checked_row(sandbox: Sandbox, folder: Path) -> ResultRow:
    """:func:`row_of`, run in the sandbox; a rejected row where the check exceeded a limit."""
    try:
        return ResultRow.of_dict(sandbox.run("row", path=folder))
    except LimitsError as error:
        return _row_without_record(folder, "rejected", _first_cause(limit_finding(error)))


def row_of(folder: Path, verdict: Verdict | None = None, registry: Registry | None = None) -> ResultRow:
    """Check one result and return its row; an unreadable result gets a row with the cause.

    ``verdict`` is the verdict on the log, if it was checked already. ``registry`` may have its withdrawal, as
    the registry of the tree may that ``folder`` lies in.
    """
    verdict = verdict or check_result(folder)
    record = verdict.record
    withdrawal = withdrawal_of(folder, verdict.digest, registry)
    status, why = _status(verdict) if withdrawal is None else (WITHDRAWN, why_withdrawn(withdrawal))
    scored = verdict.scored and withdrawal is None
    submitter, system = _submitter_and_system(folder)
    if record is None:
        return _row_without_record(folder, status, why, verdict.digest, (submitter, system))
    header = record.header
    group, key, limits_text = _group_key_and_limits(record)
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
        metrics=metrics_of(record) if scored else {},
        runtime=header["runtime"],
        image=image_of(record),
        limits=limits_of(record),
        limits_text=limits_text,
        rules=header["rules"]["version"],
        ranks=slow_rank_text(record) if scored else "",
        started=record.header.wall,
        settings=_settings(record),
        machine=identity(facts(record, "outside")),
    )


def _group_key_and_limits(record: Record) -> tuple[tuple[str, str, str], dict[str, Any], str]:
    """The table of a result, what it measured, and the limits that separate it from rows of the same key."""
    limits = limits_of(record)
    if (conversion := record.conversion) is not None:
        key = asdict(conversion)
        key["images_per_shard"] = key.pop("batch")
        return (record.division, "real", CONVERSION), key, conditions_text(limits, "native", None)
    key = asdict(record.key)
    key["batch_per_device"] = key.pop("batch")
    storage = record.header["settings"].get("storage")
    text = conditions_text(limits, record.header["loader"], storage, counts_of(record))
    if not record.computes:
        del key["precision"]  # of a model
    return (record.division, key.pop("data"), record.mode if record.computes else record.kind), key, text


def _settings(record: Record) -> dict[str, Any]:
    """The settings beside the key. A storage format other than files is one of them."""
    storage = record.header["settings"].get("storage") if record.conversion is None else None
    return {**facts_by_group(record)[SETTINGS], **({} if storage is None else {"storage": storage})}


def _row_without_record(
    folder: Path,
    status: str,
    why: str,
    digest: str | None = None,
    submitter_and_system: tuple[str, str] = ("", ""),
) -> ResultRow:
    """The row of a result whose log cannot be read: its status and the cause."""
    return ResultRow(
        group=("unknown", "unknown", "unknown"),
        key={},
        status=status,
        why=why,
        flags=0,
        unit="",
        device="",
        submitter=submitter_and_system[0],
        system=submitter_and_system[1],
        run_id=safe(folder.name),
        digest=digest or str(folder),
        metrics={},
    )


def why_withdrawn(withdrawal: Withdrawal) -> str:
    """The day and the reason of a withdrawal, whose status says the rest."""
    return safe(f"{withdrawal.withdrawn_at[:10]}: {withdrawal.reason}", _LONGEST_REASON)


def _status(verdict: Verdict) -> tuple[str, str]:
    """A result's status and, where it has no score, the first cause."""
    record = verdict.record
    if verdict.scored:
        return ("flagged" if verdict.flags else "accepted"), ""
    if record is not None and record.aborts:
        memory = verdict.accepted and record.outcome == "out_of_memory"
        return (OOM if memory else "aborted"), safe(verdict.reached.removeprefix("aborted "))
    if record is not None and record.partial:
        return "incomplete", safe(verdict.reached)
    return "rejected", _first_cause(verdict.rejections[0])


def _first_cause(finding: Finding) -> str:
    return safe(f"{finding.rule}: expected {finding.expected}, found {finding.found}")


def _submitter_and_system(folder: Path) -> tuple[str, str]:
    """Submitter and system as the description beside the log states them; empty without one."""
    try:
        value = decode(read_in(folder, "system.json", MAX_BYTES), MAX_BYTES)
    except (OSError, RecordError, StrictError):
        return "", ""
    return safe(str(value.get("submitter", ""))), safe(str(value.get("system_name", "")))
