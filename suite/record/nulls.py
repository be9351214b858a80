"""Nulls and their reasons: a number that could not be measured is null, and ``data.reasons`` says why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Fields of a log whose nulls are explained once, in the repeat's ``repeat_end.data.reasons``.
STEP_PREFIX = "step."
TELEMETRY_PREFIX = "telemetry."


def null_paths(value: Any, prefix: str = "") -> Iterator[str]:
    """The dotted path of every null inside ``value``; items of lists by their index."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _inside(inner, f"{prefix}{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _inside(inner, f"{prefix}{index}")


def _inside(value: Any, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, Mapping | list | tuple):
        yield from null_paths(value, path + ".")


def unexplained(data: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """(nulls without a reason, reasons without a null) of one event's ``data``.

    Paths start at ``data``, in an env event at ``data.facts``. Reasons that explain steps or samples
    (prefixes "step." and "telemetry.") are left to the caller.
    """
    explained = data["facts"] if "facts" in data else {name: data[name] for name in data if name != "reasons"}
    nulls = set(null_paths(explained))
    given = {path for path in data.get("reasons", {}) if not path.startswith((STEP_PREFIX, TELEMETRY_PREFIX))}
    return nulls - given, given - nulls
