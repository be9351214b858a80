"""Nulls and their reasons: a number that could not be measured is null, and ``data.reasons`` explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Fields of a log whose nulls are explained once, in the repeat's ``repeat_end.data.reasons``.
STEP_PREFIX = "step."
TELEMETRY_PREFIX = "telemetry."
_CONTAINERS = frozenset((dict, list, tuple))


def null_paths(value: Any, prefix: str = "") -> list[str]:
    """The dotted path of every null inside ``value``, parsed JSON; items of lists by their index."""
    found: list[str] = []
    # Most values are numbers and strings: the path is built only for nulls and containers.
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if inner is None:
            found.append(f"{prefix}{name}")
        elif type(inner) in _CONTAINERS and inner:
            found += null_paths(inner, f"{prefix}{name}.")
    return found


def unexplained(data: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """(nulls without a reason, reasons without a null) of one event's ``data``.

    Paths start at ``data``, in an env event at ``data.facts``. Reasons that explain steps or samples
    (prefixes "step." and "telemetry.") are left to the caller.
    """
    explained = data["facts"] if "facts" in data else {name: data[name] for name in data if name != "reasons"}
    nulls = set(null_paths(explained))
    given = {path for path in data.get("reasons", {}) if not path.startswith((STEP_PREFIX, TELEMETRY_PREFIX))}
    return nulls - given, given - nulls
