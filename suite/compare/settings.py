"""What a result was measured with, as settings that a figure or a table says: all that may change its speed.

This runs in the sandbox and returns JSON values. They are not escaped: the code that prints them escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.checker import check_result
from suite.compare.comparable import (
    CODE,
    FRAMEWORK,
    MEANING,
    SETTINGS,
    SOFTWARE,
    SYSTEM,
    facts_by_group,
)
from suite.compare.repeats import repeat_metrics
from suite.compare.result_row import ResultRow, row_of
from suite.log.model import Record
from suite.log.units import count, quantity

# Facts that are no settings, follow from other settings, or do not change the timed steps.
_LEFT_OUT = (
    *("dataset.bytes", "dataset.files", "dataset.kind", "dataset.generator", "dataset.name"),
    *("initial_parameters", "fingerprint", "shm_bytes", "device", "scale", "data"),
)
# What is measured; scale, data and mode aside.
SUBJECT = ("workload", "variant", "phase", "scenario", "storage")
# Settings that stand first in the name of a result, in this order.
FIRST = (
    *("workload", "variant", "framework", "version", "phase", "scenario", "precision", "batch", "devices"),
    *("nodes", "strategy", "device", "driver", "threads", "cpus", "cpuset", "memory_bytes", "loader"),
    *("storage", "image", "runtime"),
)
_PLAIN = frozenset(
    ("workload", "variant", "framework", "phase", "scenario", "precision", "strategy", "device", "system")
)
# Hyperparameters and datasets belong to a workload, versions to a framework.
_WITHIN = {"hyper.": SUBJECT, "dataset.": SUBJECT, "version": ("framework",)}
_COUNTED = {"threads": "thread", "devices": "device", "nodes": "node", "repeats": "repeat"}


def measured(path: Path) -> dict[str, Any]:
    """The result in ``path``: its row, settings and code, and the values of its repeats by metric."""
    verdict = check_result(path)
    row, record = row_of(path, verdict), verdict.record
    if record is None:
        return {"row": row.as_dict(), "settings": {}, "code": "", "repeats": {}}
    code = facts_by_group(record)[CODE]
    return {
        "row": row.as_dict(),
        "settings": settings_of(record, row),
        "code": f"{code['code_digest']} {code['changes_digest']}",
        "repeats": _repeats(record) if row.metrics else {},
    }


def settings_of(record: Record, row: ResultRow) -> dict[str, Any]:
    """Every setting of a run by name: text, numbers, booleans or None."""
    facts = facts_by_group(record)
    found = facts[MEANING] | facts[FRAMEWORK] | facts[SETTINGS] | row.key
    found |= {name: facts[CODE][name] for name in ("custom_pair", "custom_image")}
    found["batch"] = found.pop("batch_per_device", None)
    found = {name: value for name, value in found.items() if name not in _LEFT_OUT}
    found |= {"version": facts[SOFTWARE].get("framework.version")}
    found |= {"driver": facts[SYSTEM].get("accelerators.driver")}
    return found | {"device": row.device, "image": row.image.name or None, "system": row.system or None}


def _repeats(record: Record) -> dict[str, list[float]]:
    """The values of each metric that all completed repeats have, in their order."""
    repeats = [one.metrics for one in repeat_metrics(record)]
    found: dict[str, list[float]] = {}
    for name in repeats[0] if repeats else ():
        values = [metrics[name].value for metrics in repeats if name in metrics]
        known = [float(value) for value in values if value is not None]
        if len(known) == len(repeats) > 1:
            found[name] = known
    return found


def setting_text(name: str, value: Any) -> str:
    """A setting as a few words: ``16 threads``, ``batch 256``; empty for None."""
    if value is None or value == "":
        return ""
    if name in _PLAIN:
        return str(value)
    if name in _COUNTED and type(value) is int:
        return count(value, _COUNTED[name])
    words = _words(name)
    if isinstance(value, bool):
        return words if value else f"no {words}"
    if type(value) is int:
        if name == "memory_bytes":
            return f"memory {quantity(value, 'bytes')}"
        return f"{words} {value / 1e9:g} s" if name.endswith("_ns") else f"{words} {value:,}"
    text = str(value)
    text = text[:8] if len(text) == 64 and text.isalnum() else text  # a digest
    return f"{text} cache" if name == "cache" else f"{words} {text}"


def _words(name: str) -> str:
    name = {"fast": "fast path", "dataset.digest": "dataset"}.get(name, name)
    return name.removeprefix("hyper.").removesuffix("_ns").replace("_", " ")


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that are not equal in all, the most important first.

    Hyperparameters and datasets count where they differ within a workload, versions within a framework.
    """
    return sorted({name for some in settings for name in some if _differs(name, settings)}, key=_importance)


def _differs(name: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    within = next((names for start, names in _WITHIN.items() if name.startswith(start)), ())
    found: dict[str, set[str]] = {}
    for one in settings:
        found.setdefault(repr([one.get(each) for each in within]), set()).add(repr(one.get(name)))
    return any(len(values) > 1 for values in found.values())


def _importance(name: str) -> tuple[int, str]:
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def name_of(settings: Mapping[str, Any], names: Iterable[str]) -> str:
    """The settings with these names as text, the most important first."""
    parts = [setting_text(name, settings.get(name)) for name in sorted(names, key=_importance)]
    return ", ".join(part for part in parts if part)
