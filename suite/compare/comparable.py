"""What a comparison needs of one result: facts by group, and metrics with the values of each repeat.

It runs in the sandbox, so it returns JSON values alone, and nothing of it is escaped yet: whoever prints
escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.checker import check_result
from suite.checker.sandboxed import VerdictSummary, ended_verdict, limit_finding
from suite.checker.verdict import Verdict
from suite.contract import CONVERSION
from suite.log import statistics
from suite.log.model import Record, Repeat
from suite.metrics.machine import at, facts
from suite.metrics.metric import Metric, missing, reason_of
from suite.metrics.run import first_reached, metrics_of, title, unit
from suite.rules import Rules, load
from suite.sandbox.sandbox import LimitsError, Sandbox

# Groups in the order in which they are reported. The first changes what is measured, not how fast it is.
MEANING, RULES, SYSTEM = "what is measured", "rules and purpose", "system, seen from outside"
FRAMEWORK, SETTINGS, IMAGE, CODE = "framework and devices", "settings", "image", "code"
SOFTWARE = "system, seen from inside"
GROUPS = (MEANING, FRAMEWORK, SETTINGS, RULES, IMAGE, CODE, SYSTEM, SOFTWARE)
_KEY_OF_MEANING = ("variant", "scale", "precision", "batch", "scenario", "data", "cache")
# Settings that stand in the key, or are covered by the digests of code.
_TOLD = ("workload", "framework", "phase", "devices", "mode", "division", "purpose", *_KEY_OF_MEANING)
_OF_CODE = ("custom_pair", "custom_python", "custom_image", "changes_digest")
_PERCENTILES = (50, 90, 99)
_PLAIN = str | int | bool | None

COMPARE_TASKS = "suite.compare.tasks"

Facts = dict[str, dict[str, Any]]


def comparable_in(sandbox: Sandbox, path: Path) -> tuple[VerdictSummary, dict[str, Any] | None]:
    """The verdict on the result in ``path``, and what a comparison needs of it; None without a score."""
    try:
        value = sandbox.run("compare", path=path)
    except LimitsError as error:
        return VerdictSummary.of_dict(ended_verdict(path, limit_finding(error))), None
    return VerdictSummary.of_dict(value["verdict"]), value["comparable"]


def comparable(path: Path, rules_of: Callable[[str], Rules] = load) -> dict[str, Any]:
    """The verdict on the result in ``path`` and, where it has a score, what a comparison needs of it."""
    verdict = check_result(path, rules_of)
    record = verdict.record
    if record is None or not verdict.scored:
        return {"verdict": verdict.as_dict(), "comparable": None}
    return {"verdict": verdict.as_dict(), "comparable": _comparable(record, verdict)}


def _comparable(record: Record, verdict: Verdict) -> dict[str, Any]:
    subject = record.subject
    phase = CONVERSION if record.conversion is not None else record.key.phase
    scenario = "offline" if record.conversion is not None else record.key.scenario
    return {
        "run_id": record.run_id,
        "sha256": record.digest,
        "when": record.events[0].wall,
        "title": title(record),
        "flags": sorted({found.rule for found in verdict.flags}),
        "same": {"workload": subject.workload, "phase": phase, "mode": record.mode, "unit": unit(record)},
        "scenario": scenario,
        "facts": groups_of(record),
        "metrics": compared_metrics(record),
    }


def groups_of(record: Record) -> Facts:
    """Every configured and observed fact of a run, by group and dotted name; none that each run has anew."""
    header, key = record.header.data, asdict(record.subject)
    settings = dict(header.get("settings") or {})
    # limits are settings; settings of a version that has no word for them are null in the other one
    meaning = {name: key.get(name) for name in _KEY_OF_MEANING}
    meaning |= _flat("hyper", header.get("hyper", {})) | _flat("dataset", header["dataset"])
    meaning |= {
        "initial_parameters": header.get("initial_parameters"),
        "storage": settings.pop("storage", None),
    }
    code = {name: header.get(name) for name in ("suite_version", "code_digest")}
    code |= _flat("git", header["git"]) | {name: settings.pop(name, None) for name in _OF_CODE}
    rules = {name: header.get(name) for name in ("division", "purpose")}
    rules |= {f"rules.{name}": header["rules"][name] for name in ("version", "digest")}
    rules["departs from"] = ", ".join(sorted({str(row["rule"]) for row in header["differences"]})) or None
    image = header["image"]
    outside, inside = facts(record, "outside"), facts(record, "inside")
    return {
        MEANING: meaning,
        FRAMEWORK: {name: key.get(name) for name in ("framework", "devices")},
        SETTINGS: {
            **_flat("", {name: value for name, value in settings.items() if name not in _TOLD}),
            **{name: header.get(name) for name in ("loader", "runtime", "launcher", "repeats")},
        },
        RULES: rules,
        IMAGE: _flat("image", image) | _flat("container", outside.get("container")),
        CODE: code,
        SYSTEM: _flat("", {name: value for name, value in outside.items() if name != "container"}),
        SOFTWARE: _flat("", inside),
    }


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    """Nested mappings and lists as dotted names with plain values; empty ones vanish."""
    if isinstance(value, Mapping):
        parts: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        parts = iter(enumerate(value))
    else:
        plain = value if isinstance(value, _PLAIN) else ", ".join(map(str, value))
        return {prefix: plain}
    found: dict[str, Any] = {}
    for name, part in parts:
        found |= _flat(f"{prefix}.{name}" if prefix else str(name), part)
    return found


def compared_metrics(record: Record) -> dict[str, dict[str, Any]]:
    """Each metric with its value, unit, one value a repeat, and the reason where there is none."""
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    if record.mode == "quality":
        found = {"time_to_quality_s": _quality(record, done), "energy": _energy(done, None)}
    else:
        found = {"throughput": _throughput(record, done)}
        if record.conversion is None and record.key.scenario == "single_stream":
            found |= _latency(record, done)
        found["energy"] = _energy(done, unit(record).removesuffix("s"))
    return found


def _metric(figure: Metric, repeats: Sequence[float] = ()) -> dict[str, Any]:
    known = list(repeats) if figure.value is not None else []
    return {"value": figure.value, "unit": figure.unit, "reason": figure.reason, "repeats": known}


def _throughput(record: Record, done: Sequence[Repeat]) -> dict[str, Any]:
    rates = [1e9 * repeat.units / repeat.window_ns for repeat in done if repeat.units and repeat.window_ns]
    return _metric(metrics_of(record)["throughput_per_s"], rates)


def _latency(record: Record, done: Sequence[Repeat]) -> dict[str, dict[str, Any]]:
    """Percentiles of one request's time: over all steps, as tables show them, and within each repeat."""
    shown = metrics_of(record)
    found = {}
    for percent in _PERCENTILES:
        pools = [[ns for rank in repeat.ranks for ns in repeat.durations_ns(rank)] for repeat in done]
        within = [statistics.percentile(pool, percent) / 1e6 for pool in pools if pool]
        found[f"latency_p{percent}_ms"] = _metric(shown[f"step_p{percent}_ms"], within)
    return found


def _quality(record: Record, done: Sequence[Repeat]) -> dict[str, Any]:
    times = [ns / 1e9 for repeat in done if (ns := first_reached(repeat)) is not None]
    return _metric(metrics_of(record)["time_to_quality_s"], times)


def _energy(done: Sequence[Repeat], each: str | None) -> dict[str, Any]:
    """Joules of all accelerators between the window's edges: per unit of work, or (None) of a repeat."""
    joules, work = [], []
    for repeat in done:
        used = _joules(repeat)
        if isinstance(used, str):
            return _metric(missing(used))
        joules.append(used)
        work.append(1 if each is None else repeat.units or 0)
    if not joules or min(work) <= 0:
        return _metric(missing("no repeat has counted work"))
    name = "J" if each is None else f"J/{each}"
    total = sum(joules) / (len(joules) if each is None else sum(work))
    return _metric(Metric(total, name), [one / units for one, units in zip(joules, work, strict=True)])


def _joules(repeat: Repeat) -> float | str:
    """What the accelerators' energy counters say of a repeat's window; the reason where they say nothing."""
    opened, closed = repeat.counters("window_open"), repeat.counters("window_close")
    if opened is None or closed is None:
        return f"repeat {repeat.index} has no counters at its window's edges"
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
