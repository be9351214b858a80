"""What the pages show of one result, read in the sandbox and returned as JSON values.

The strings are not escaped: :mod:`suite.site.html` escapes where they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.advice.tasks import cell_facts
from suite.audit.examine import examine
from suite.checker import Verdict, check_result
from suite.compare.comparable import CODE, MEANING, SOFTWARE, SYSTEM, comparable_of, facts_by_group
from suite.compare.compare import SAME_WORK
from suite.compare.result_row import ResultRow, row_of
from suite.compare.settings import settings_of
from suite.log.files import folder_of
from suite.log.model import Record, Repeat
from suite.log.statistics import percentile
from suite.metrics.curves import curves_of
from suite.metrics.machine import device_name
from suite.metrics.resources import resources_of
from suite.metrics.run import title
from suite.report.explanation import explain_speed
from suite.report.wall_time import wall_time
from suite.rules import load
from suite.submissions.package import check_entry
from suite.submissions.registry import Registry

ENVIRONMENT = (CODE, SYSTEM, SOFTWARE)  # groups of facts that only the result's own page shows


def facts_of(path: Path, root: Path, registry: Registry) -> dict[str, Any]:
    """Verdict, level, metrics, repeats, step times, telemetry and environment of the result in ``path``.

    ``root`` is the folder that the site is made from, ``registry`` that of its submissions.
    """
    verdict = check_result(path)
    audit = examine(path, root, registry, verdict=verdict)
    row = row_of(folder_of(path), verdict, registry)
    record = verdict.record
    found: dict[str, Any] = {
        "row": row.as_dict(),
        "audit": {name: audit[name] for name in _AUDIT},
        "outcomes": _outcomes(audit["outcomes"]),
        "entry": _entry(path, root, registry, verdict) if audit["described"] else None,
        "reached": verdict.reached,
    }
    if record is None:
        return found
    found |= _of_record(record, row) | {"advice": cell_facts(verdict) if verdict.accepted else None}
    if not verdict.scored or audit["withdrawal"] is not None:
        return found
    return found | _of_scored(record) | {"compared": _compared(comparable_of(record, verdict))}


_AUDIT = (
    *("accepted", "scored", "sha256", "rules", "level", "missing", "described", "submitter"),
    *("findings", "files", "quote", "why_no_quote", "withdrawal"),
)


def _entry(path: Path, root: Path, registry: Registry, verdict: Verdict) -> dict[str, Any]:
    """The packaged result as JSON values, to be compared with the others."""
    folder = folder_of(path).resolve()
    base = root.resolve() if folder.is_relative_to(root.resolve()) else folder
    return check_entry(folder, base, registry, verdict).as_dict()


def _outcomes(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """How many rules had each outcome."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    return counts


def _of_record(record: Record, row: ResultRow) -> dict[str, Any]:
    header, facts = record.header.data, facts_by_group(record)
    return {
        "title": title(record),
        "when": record.events[0].wall,
        "purpose": header["purpose"],
        "attempt": header["attempt"],
        "settings": settings_of(record, row),
        "code": f"{facts[CODE]['code_digest']} {facts[CODE]['changes_digest']}",
        "overrides": list(header["overrides"]),
        "differences": list(header["differences"]),
        "facts": {name: facts[name] for name in facts if name not in ENVIRONMENT},
        "environment": {name: facts[name] for name in ENVIRONMENT},
        "sheet": _data_sheet(record),
    }


def _of_scored(record: Record) -> dict[str, Any]:
    return {
        "why": explain_speed(record),
        "time": wall_time(record),
        "resources": {name: _metric(metric) for name, metric in resources_of(record).items()},
        "repeats": [_repeat(repeat, bool(record.pooled_ns)) for repeat in record.repeats],
        "curves": curves_of(record),
        "evaluations": _evaluations(record),
    }


def _compared(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a comparison needs: metric, its value of each repeat, what must be equal, times of the repeats."""
    name, metric = next(iter(result["metrics"].items()))
    times = [{part: one[part] for part in ("boot", "began_ns", "ended_ns")} for one in result["times"]]
    same = {**result["same"], **{part: result["facts"][MEANING].get(part) for part in SAME_WORK}}
    return {"metric": name, "repeats": metric["repeats"], "same": same, "times": times}


def _metric(metric: Any) -> dict[str, Any]:
    return {"value": metric.value, "unit": metric.unit, "reason": metric.reason, "note": metric.note}


def _data_sheet(record: Record) -> dict[str, Any] | None:
    """The entry of the run's device in the rules' table; None where they have none."""
    try:
        entry = load(str(record.header.data["rules"]["version"])).device(device_name(record))
    except ValueError:
        return None
    return None if entry is None else dict(entry)


def _repeat(repeat: Repeat, timed: bool) -> dict[str, Any]:
    """Window, units and median step of one repeat; ``timed``: timestamps state when a step ended."""
    steps = [ns for rank in repeat.ranks for ns in repeat.durations_ns(rank)] if timed else []
    return {
        "index": repeat.index,
        "window_ns": repeat.window_ns,
        "units": repeat.units,
        "step_p50_ns": percentile(steps, 50) if steps else None,
    }


def _evaluations(record: Record) -> list[dict[str, Any]]:
    """The evaluations of a quality run."""
    return [
        {
            "repeat": repeat.index,
            "step": event["step"],
            "elapsed_ns": event["elapsed_ns"],
            "value": float.fromhex(event["value"]),
            "reached": event["reached"],
        }
        for repeat in record.repeats
        for event in repeat.evaluations
    ]
