"""The data of one result for a comparison: facts by group, and metrics with the values of each repeat.

This runs in the sandbox and returns JSON values. They are not escaped: the code that prints them escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from suite.checker import check_result
from suite.checker.sandboxed import VerdictSummary, ended_verdict, limit_finding
from suite.checker.verdict import Verdict
from suite.contract import CONVERSION, MEASURED_STEPS, key_fields
from suite.log import statistics
from suite.log.files import folder_of
from suite.log.model import Event, Record, Repeat
from suite.metrics.energy import DEVICES, NODE, energy_per_unit
from suite.metrics.machine import at, facts
from suite.metrics.metric import Metric, missing, reason_of
from suite.metrics.run import first_reached, metrics_of, title, unit
from suite.rules import Rules, load
from suite.sandbox.sandbox import LimitsError, Sandbox
from suite.submissions.registry.withdrawals import withdrawal_of

# Groups in the order of the report. Facts of the first define what is measured, not how fast it runs.
MEANING, RULES, SYSTEM = "what is measured", "rules and purpose", "system, seen from outside"
FRAMEWORK, SETTINGS, IMAGE, CODE = "framework and devices", "settings", "image", "code"
SOFTWARE = "system, seen from inside"
GROUPS = (MEANING, FRAMEWORK, SETTINGS, RULES, IMAGE, CODE, SYSTEM, SOFTWARE)
_RANKS = ("devices", "nodes", "strategy")
_KEY_OF_MEANING = ("variant", "scale", "precision", "batch", "scenario", "data", "cache", "encoding")
# Settings that are part of the key or covered by the digests of code.
_IN_KEY_OR_CODE = (
    "workload",
    "framework",
    "phase",
    *_RANKS,
    "mode",
    "division",
    "purpose",
    "steps",
    *_KEY_OF_MEANING,
)
_CODE_SETTINGS = ("custom_pair", "custom_python", "custom_image", "changes_digest")
_PERCENTILES = (50, 90, 99)
_GPU = re.compile(r"^gpu[0-9]+\.")
_TIMED = {"repeat_start", "repeat_end"}  # the clock triples of a completed repeat
_SCALAR = str | int | bool | None

COMPARE_TASKS = "suite.compare.tasks"

Facts = dict[str, dict[str, Any]]


def comparable_in(sandbox: Sandbox, path: Path) -> tuple[VerdictSummary, dict[str, Any] | None]:
    """The verdict on the result in ``path``, and its comparison data; None without a score."""
    try:
        value = sandbox.run("compare", path=path)
    except LimitsError as error:
        return VerdictSummary.of_dict(ended_verdict(path, limit_finding(error))), None
    return VerdictSummary.of_dict(value["verdict"]), value["comparable"]


def comparable(path: Path, rules_of: Callable[[str], Rules] = load) -> dict[str, Any]:
    """The verdict on the result in ``path`` and, where it has a score, its comparison data."""
    verdict = check_result(path, rules_of)
    record, value = verdict.record, verdict_values(path, verdict)
    if record is None or not value["scored"]:
        return {"verdict": value, "comparable": None}
    return {"verdict": value, "comparable": comparable_of(record, verdict)}


def verdict_values(path: Path, verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON values; of a withdrawn result without a score, and with the withdrawal as text."""
    withdrawal = withdrawal_of(folder_of(path), verdict.digest)
    if withdrawal is None:
        return verdict.as_dict()
    return verdict.as_dict() | {"accepted": False, "scored": False, "withdrawn": str(withdrawal)}


def comparable_of(record: Record, verdict: Verdict) -> dict[str, Any]:
    """The comparison data of a record with a score."""
    subject = record.subject
    phase = CONVERSION if record.conversion is not None else record.key.phase
    scenario = "offline" if record.conversion is not None else record.key.scenario
    return {
        "run_id": record.run_id,
        "sha256": record.digest,
        "when": record.events[0].wall,
        "title": title(record),
        "flags": sorted({flag.rule for flag in verdict.flags}),
        "same": {"workload": subject.workload, "phase": phase, "mode": record.mode, "unit": unit(record)},
        "scenario": scenario,
        "facts": facts_by_group(record),
        "metrics": compared_metrics(record),
        "baseline": cited_figures(record),
        "times": [times_of(repeat) for repeat in record.repeats if repeat.clock_at.keys() >= _TIMED],
    }


def cited_figures(record: Record) -> dict[str, Any] | None:
    """``log`` and ``figures`` of the baseline that the run cites, those of its GPUs as means: ``gpu.triad``.

    A ``rate`` is in units per second; only figures of equal ``method`` compare. None without a baseline.
    """
    cited = record.header.data.get("baseline")
    if cited is None:
        return None
    figures: dict[tuple[str, str], list[int]] = {}
    for name, one in cited["series"].items():
        general = _GPU.sub("gpu.", name)
        figures.setdefault((general, one["method"]), []).append(one["rate"])
    means = {name: {"rate": fmean(rates), "method": method} for (name, method), rates in figures.items()}
    return {"log": cited["log"], "figures": means}


def times_of(repeat: Repeat) -> dict[str, Any]:
    """When a repeat ran by the machine's monotonic clock (ns since its boot), its window and its work."""
    opened, closed = repeat.clock_at["repeat_start"], repeat.clock_at["repeat_end"]
    return {
        "boot": opened["boot"],
        "began_ns": _nanoseconds(opened),
        "ended_ns": _nanoseconds(closed),
        "window_ns": repeat.window_ns,
        "units": repeat.units,
    }


def _nanoseconds(clock: Event) -> int:
    seconds, rest = clock["monotonic"]
    return int(seconds) * 1_000_000_000 + int(rest)


def facts_by_group(record: Record) -> Facts:
    """Every configured and observed fact of a run, except those unique to it, by group and dotted name."""
    header, key = record.header.data, key_fields(record.subject)
    settings = dict(header.get("settings") or {})
    meaning = {name: key.get(name) for name in _KEY_OF_MEANING}
    meaning |= _flat("hyper", header.get("hyper", {})) | _flat("dataset", header["dataset"])
    meaning |= {
        "initial_parameters": header.get("initial_parameters"),
        "storage": settings.pop("storage", None),
        "steps": None if (steps := header.get("measured_steps")) == MEASURED_STEPS else steps,
    }
    code = {name: header.get(name) for name in ("suite_version", "code_digest")}
    code |= _flat("git", header["git"]) | {name: settings.pop(name, None) for name in _CODE_SETTINGS}
    rules = {name: header.get(name) for name in ("division", "purpose")}
    rules |= {f"rules.{name}": header["rules"][name] for name in ("version", "digest")}
    rules["departs from"] = ", ".join(sorted({str(row["rule"]) for row in header["differences"]})) or None
    image = header["image"]
    outside, inside = facts(record, "outside"), facts(record, "inside")
    return {
        MEANING: meaning,
        FRAMEWORK: {name: key.get(name) for name in ("framework", *_RANKS)},
        SETTINGS: {
            **_flat("", {name: value for name, value in settings.items() if name not in _IN_KEY_OR_CODE}),
            **{name: header.get(name) for name in ("loader", "runtime", "launcher", "repeats")},
        },
        RULES: rules,
        IMAGE: _flat("image", image) | _flat("container", outside.get("container")),
        CODE: code,
        SYSTEM: _flat("", {name: value for name, value in outside.items() if name != "container"}),
        SOFTWARE: _flat("", inside),
    }


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    """Nested mappings and lists as dotted names with scalar values; empty ones are dropped."""
    if isinstance(value, Mapping):
        parts: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        parts = iter(enumerate(value))
    else:
        return {prefix: value if isinstance(value, _SCALAR) else ", ".join(map(str, value))}
    values: dict[str, Any] = {}
    for name, part in parts:
        values |= _flat(f"{prefix}.{name}" if prefix else str(name), part)
    return values


def compared_metrics(record: Record) -> dict[str, dict[str, Any]]:
    """Each metric with its value, unit, one value per repeat, and the reason where it has no value."""
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    if record.mode == "quality":
        metrics = {"time_to_quality_s": _quality(record, done), "energy": _energy_to_quality(done)}
    else:
        metrics = {"throughput": _throughput(record, done)}
        if record.conversion is None and record.key.scenario == "single_stream":
            metrics |= _latency(record, done)
        metrics["energy"] = _energy(record, DEVICES)
        if (of_node := _energy(record, NODE))["value"] is not None:
            metrics["energy_node"] = of_node
    return metrics


def _metric(metric: Metric, repeats: Sequence[float] = ()) -> dict[str, Any]:
    measured = list(repeats) if metric.value is not None else []
    return {"value": metric.value, "unit": metric.unit, "reason": metric.reason, "repeats": measured}


def _throughput(record: Record, done: Sequence[Repeat]) -> dict[str, Any]:
    rates = [1e9 * repeat.units / repeat.window_ns for repeat in done if repeat.units and repeat.window_ns]
    return _metric(metrics_of(record)["throughput_per_s"], rates)


def _latency(record: Record, done: Sequence[Repeat]) -> dict[str, dict[str, Any]]:
    """Percentiles of a request's latency within each repeat; the value is their mean.

    `make summary` shows the percentiles over all steps of a run, which no mean of repeats gives.
    """
    over_all = metrics_of(record)
    latencies = {}
    for percent in _PERCENTILES:
        pools = [[ns for rank in repeat.ranks for ns in repeat.durations_ns(rank)] for repeat in done]
        within = [statistics.percentile(pool, percent) / 1e6 for pool in pools if pool]
        metric = over_all[f"step_p{percent}_ms"]
        if metric.value is not None and within:
            metric = Metric(fmean(within), metric.unit)
        latencies[f"latency_p{percent}_ms"] = _metric(metric, within)
    return latencies


def _quality(record: Record, done: Sequence[Repeat]) -> dict[str, Any]:
    times = [ns / 1e9 for repeat in done if (ns := first_reached(repeat)) is not None]
    return _metric(metrics_of(record)["time_to_quality_s"], times)


def _energy(record: Record, scope: str) -> dict[str, Any]:
    """Joules per unit of work, with the value of each repeat."""
    found = energy_per_unit(record, scope, unit(record).removesuffix("s"))
    return _metric(found.metric, found.repeats)


def _energy_to_quality(done: Sequence[Repeat]) -> dict[str, Any]:
    """Joules of all accelerators from the first access to the data to the end of a training."""
    joules = []
    for repeat in done:
        measured = _joules(repeat)
        if isinstance(measured, str):
            return _metric(missing(measured))
        joules.append(measured)
    return _metric(Metric(fmean(joules), "J") if joules else missing("no repeat was completed"), joules)


def _joules(repeat: Repeat) -> float | str:
    """Joules of a repeat's window by the accelerators' energy counters; the reason where they are unknown."""
    total = 0.0
    for opened, closed in repeat.counter_pairs():
        found = _joules_of_node(repeat, opened, closed)
        if isinstance(found, str):
            return found
        total += found
    return total


def _joules_of_node(repeat: Repeat, opened: Event | None, closed: Event | None) -> float | str:
    if opened is None or closed is None:
        return f"repeat {repeat.index} has no counters at window start and window end"
    if opened["devices"] is None:
        return reason_of(opened.data, "devices")
    if not opened["devices"]:
        return "no accelerator in this run"
    total = 0
    for number, (before, after) in enumerate(zip(opened["devices"], closed["devices"] or (), strict=False)):
        first, last = at(before, "energy_mj"), at(after, "energy_mj")
        if first is None or last is None:
            return reason_of((opened if first is None else closed).data, f"devices.{number}.energy_mj")
        total += last - first
    return total / 1000 if total > 0 else "the energy counter did not move within the window"
