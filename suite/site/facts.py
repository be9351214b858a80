"""What the pages show of one result, read in the sandbox and returned as JSON values.

The strings are not escaped: :mod:`suite.site.html` escapes where they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from suite.audit.examine import examine
from suite.checker import Verdict, check_result
from suite.compare.comparable import CODE, SOFTWARE, SYSTEM, facts_by_group
from suite.compare.result_row import row_of
from suite.log.files import folder_of
from suite.log.model import Event, Record, Repeat
from suite.log.statistics import percentile
from suite.metrics.machine import at, device_name, devices
from suite.metrics.resources import resources_of
from suite.metrics.run import title
from suite.report.explanation import explain_speed
from suite.report.wall_time import wall_time
from suite.rules import load
from suite.submissions.package import check_entry
from suite.submissions.registry import Registry

_MOST_STEPS = 20_000  # step times of one result; a run of many ranks has more, and keeps its percentiles
ENVIRONMENT = (CODE, SYSTEM, SOFTWARE)  # groups of facts that only the result's own page shows
_TELEMETRY = (
    ("power_mw", "power", "W", 1e-3),
    ("sm_clock_mhz", "SM clock", "MHz", 1.0),
    ("utilisation_percent", "utilisation", "%", 1.0),
    ("memory_utilisation_percent", "memory controller", "%", 1.0),
    ("memory_used_bytes", "memory used", "GB", 1e-9),
    ("temperature_c", "temperature", "°C", 1.0),
)


def facts_of(path: Path, root: Path, registry: Registry) -> dict[str, Any]:
    """Verdict, level, metrics, repeats, step times, telemetry and environment of the result in ``path``.

    ``root`` is the folder that the site is made from, ``registry`` that of its submissions.
    """
    verdict = check_result(path)
    audit = examine(path, root, registry, verdict=verdict)
    row = row_of(folder_of(path), verdict)
    record = verdict.record
    found: dict[str, Any] = {
        "row": row.as_dict(),
        "kind": "cpu" if record is None or not devices(record) else "gpu",
        "audit": {name: audit[name] for name in _AUDIT},
        "outcomes": _outcomes(audit["outcomes"]),
        "entry": _entry(path, root, registry, verdict) if audit["described"] else None,
        "reached": verdict.reached,
    }
    return found if record is None else found | _of_record(record, scored=verdict.scored)


_AUDIT = (
    *("accepted", "scored", "sha256", "rules", "level", "missing", "described", "submitter"),
    *("findings", "files", "quote", "why_no_quote"),
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


def _of_record(record: Record, *, scored: bool) -> dict[str, Any]:
    header, facts = record.header.data, facts_by_group(record)
    found: dict[str, Any] = {
        "title": title(record),
        "when": record.events[0].wall,
        "purpose": header["purpose"],
        "attempt": header["attempt"],
        "overrides": list(header["overrides"]),
        "differences": list(header["differences"]),
        "facts": {name: facts[name] for name in facts if name not in ENVIRONMENT},
        "environment": {name: facts[name] for name in ENVIRONMENT},
        "sheet": _data_sheet(record),
    }
    if not scored:
        return found
    return found | {
        "why": explain_speed(record),
        "time": wall_time(record),
        "resources": {name: _metric(metric) for name, metric in resources_of(record).items()},
        "repeats": [_repeat(repeat) for repeat in record.repeats],
        "steps": _steps(record),
        "telemetry": _telemetry(record),
        "curve": _curve(record),
    }


def _metric(metric: Any) -> dict[str, Any]:
    return {"value": metric.value, "unit": metric.unit, "reason": metric.reason, "note": metric.note}


def _data_sheet(record: Record) -> dict[str, Any] | None:
    """The entry of the run's device in the rules' table; None where they have none."""
    try:
        entry = load(str(record.header.data["rules"]["version"])).device(device_name(record))
    except ValueError:
        return None
    return None if entry is None else dict(entry)


def _repeat(repeat: Repeat) -> dict[str, Any]:
    """Window, units and median step of one repeat, with where its window lies on the run's clock (ns)."""
    steps = [ns for rank in repeat.ranks for ns in repeat.durations_ns(rank)]
    return {
        "index": repeat.index,
        "window_ns": repeat.window_ns,
        "units": repeat.units,
        "step_p50_ns": percentile(steps, 50) if steps else None,
        "open_ns": at(repeat.end.data, "window.open_ns") if repeat.end else None,
        "close_ns": at(repeat.end.data, "window.close_ns") if repeat.end else None,
    }


def _steps(record: Record) -> dict[str, Any]:
    """The measured steps' durations (ns) of rank 0 by repeat, and of all ranks where they are few."""
    if record.pooled_ns is None or record.conversion is not None:
        return {"trace": [], "pooled": []}
    pooled = record.pooled_ns
    return {
        "trace": [list(repeat.durations_ns()) for repeat in record.repeats if repeat.end and repeat.ranks],
        "pooled": list(pooled) if len(pooled) <= _MOST_STEPS else [],
    }


def _telemetry(record: Record) -> dict[str, Any]:
    """Samples over the run: times (s), series by device, and the spans of soaks, windows and tail (s)."""
    samples = [sample for repeat in record.repeats for sample in repeat.all_samples]
    samples = [sample for sample in samples if sample["node"] == 0]
    if not samples:
        return {"times": [], "series": [], "spans": []}
    count = max(len(sample["devices"] or ()) for sample in samples)
    series = [
        {
            "name": label if count == 1 else f"{label}, device {number}",
            "quantity": label,
            "unit": unit,
            "values": [_scaled(_of_device(sample, number).get(name), scale) for sample in samples],
        }
        for name, label, unit, scale in _TELEMETRY
        for number in range(count)
    ]
    host = [_scaled(at(sample.data, "host.memory_bytes"), 1e-9) for sample in samples]
    series.append({"name": "host memory", "quantity": "host memory", "unit": "GB", "values": host})
    series.append({"name": "CPU", "quantity": "CPU", "unit": "cores", "values": list(_cores(samples))})
    series = [one for one in series if any(value is not None for value in one["values"])]
    return {
        "times": [sample["offset_ns"] / 1e9 for sample in samples],
        "series": series,
        "spans": list(_spans(record)),
    }


def _of_device(sample: Event, number: int) -> Mapping[str, Any]:
    listed = sample["devices"] or ()
    return listed[number] if number < len(listed) else {}


def _scaled(value: Any, scale: float) -> float | None:
    return None if value is None else value * scale


def _cores(samples: Sequence[Event]) -> Any:
    """CPU cores in use since the sample before; None where a counter is missing or a new repeat began."""
    yield None
    for before, after in pairwise(samples):
        first, last = (at(sample.data, "processes.cpu_time_ns") for sample in (before, after))
        span = after["offset_ns"] - before["offset_ns"]
        same = before.repeat == after.repeat and first is not None and last is not None
        yield (last - first) / span if same and span > 0 and last >= first else None


def _spans(record: Record) -> Any:
    """(name, start, end) in seconds on the run's clock of each window and of soak and tail samples."""
    for repeat in record.repeats:
        for name in ("soak", "tail"):
            times = [sample["offset_ns"] / 1e9 for sample in repeat.samples(name) if sample["node"] == 0]
            if times:
                yield [name, times[0], times[-1]]
        if repeat.end is not None:
            window = repeat.end.data["window"]
            yield [f"window {repeat.index}", window["open_ns"] / 1e9, window["close_ns"] / 1e9]


def _curve(record: Record) -> list[dict[str, Any]]:
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
