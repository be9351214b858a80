"""The whole content of one result for analyses; runs in the sandbox and returns JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.checker import check_result
from suite.checker.verdict import Verdict
from suite.compare.comparable import comparable_of, verdict_values
from suite.compare.repeats import repeat_metrics
from suite.log.finding import RecordError
from suite.log.model import Event, Record, Repeat
from suite.log.reader import read_result
from suite.metrics.run import metrics_of, title

# Fields of a step that are decoded, and digests, which stay in the log: no analysis needs them.
_HEXADECIMAL = ("loss", "grad_norm")
_DIGESTS = ("batch_digest", "output_digest")

_FIRST = ("rank", "step", "phase")  # columns

Columns = dict[str, list[Any]]


def content(path: Path, check: bool) -> dict[str, Any]:
    """The verdict on the result in ``path``, None with ``check`` False; and its content.

    The content is None for a log that cannot be read, whose defects are findings of the verdict, or
    ``defects`` without a verdict. A log without a score has no metrics.
    """
    verdict: Verdict | None = None
    value: dict[str, Any] | None = None
    defects: list[dict[str, Any]] = []
    try:
        if check:
            verdict = check_result(path)
            value, record = verdict_values(path, verdict), verdict.record
        else:
            record = read_result(path)
    except RecordError as error:
        record, defects = None, [asdict(defect) for defect in error.defects]
    return {
        "verdict": value,
        "defects": defects,
        "content": None if record is None else _content(record, verdict, value),
    }


def _content(record: Record, verdict: Verdict | None, value: dict[str, Any] | None) -> dict[str, Any]:
    scored = record.completed if value is None else value["scored"]
    return {
        "title": title(record),
        "sha256": record.digest,
        "started": record.header.wall,
        "outcome": record.outcome,
        "header": dict(record.header.data),
        "metrics": {name: asdict(metric) for name, metric in metrics_of(record).items()} if scored else {},
        "repeats": [asdict(one) for one in repeat_metrics(record)] if scored else [],
        "steps": _steps(record),
        "telemetry": _telemetry(record),
        "evaluations": _columns(_evaluations(record)),
        "comparable": None if verdict is None or not scored else comparable_of(record, verdict),
    }


def _steps(record: Record) -> Columns:
    """One row per step and rank. ``duration_ns`` is that of the measured steps."""
    return _columns(row for repeat in record.repeats for row in _steps_of(repeat))


def _steps_of(repeat: Repeat) -> Iterator[dict[str, Any]]:
    for rank in repeat.ranks:
        durations = iter(repeat.durations_ns(rank))
        for step in repeat.steps_of(rank):
            row: dict[str, Any] = {"repeat": repeat.index}
            row |= {name: step.data[name] for name in _FIRST}
            row |= {name: value for name, value in step.data.items() if name not in _DIGESTS}
            row |= {name: _decoded(step.data.get(name)) for name in _HEXADECIMAL}
            row["duration_ns"] = next(durations) if step.data["phase"] == "measured" else None
            yield row


def _decoded(text: str | None) -> float | None:
    return None if text is None else float.fromhex(text)


def _telemetry(record: Record) -> Columns:
    """One row per reading and device; one row without a device where a reading has none.

    Fields of a device keep their names; those of the host and of the run's processes begin with ``host_`` and
    ``processes_``.
    """
    return _columns(
        row
        for repeat in record.repeats
        for event in sorted(repeat.telemetry, key=lambda event: int(event["offset_ns"]))
        for row in _readings(event)
    )


def _readings(event: Event) -> Iterator[dict[str, Any]]:
    data = event.data
    shared: dict[str, Any] = {"repeat": event.repeat, "wall": event.wall}
    shared |= {name: data.get(name) for name in ("source", "at", "node", "offset_ns")}
    for group in ("host", "processes"):
        shared |= _flat(group, data.get(group) or {})
    for number, device in enumerate(data.get("devices") or [None]):
        yield {**shared, "device": None if device is None else number, **_flat("", device or {})}


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        full = f"{prefix}_{name}" if prefix else name
        found |= _flat(full, value) if isinstance(value, Mapping) else {full: value}
    return found


def _evaluations(record: Record) -> Iterator[dict[str, Any]]:
    """The quality evaluations: value, target, epoch, step and time."""
    for repeat in record.repeats:
        for event in repeat.evaluations:
            value = {name: one for name, one in event.data.items() if isinstance(one, str | int | float)}
            yield {"repeat": repeat.index, **value, "value": float.fromhex(event["value"])}


def _columns(rows: Iterator[dict[str, Any]]) -> Columns:
    """The rows as columns; None where a row lacks a name."""
    known = list(rows)
    names = list(dict.fromkeys(name for row in known for name in row))
    return {name: [row.get(name) for row in known] for name in names}
