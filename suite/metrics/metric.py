"""One figure, and the ways that repeats make one: a number with its unit, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.log.model import Data, Repeat
from suite.metrics.machine import at


@dataclass(frozen=True, slots=True)
class Metric:
    """One number with its unit. ``reason`` says why there is no value, ``note`` how the value came about."""

    value: float | int | None
    unit: str = ""
    reason: str = ""
    note: str = ""


def missing(reason: str) -> Metric:
    """A figure that could not be measured."""
    return Metric(None, reason=reason)


def reason_of(data: Data, path: str) -> str:
    """Why the field at ``path`` of an event's data, or an object around it, is null."""
    reasons = data.get("reasons", {})
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found = reasons.get(".".join(parts[:length]))
        if found:
            return str(found)
    return f"{path} is not in the log"


def end_of(repeat: Repeat) -> Data:
    """What the repeat reported at its end; nothing where it did not get there."""
    return repeat.end.data if repeat.end is not None else {}


def largest(ends: Sequence[Data], path: str, note: str) -> Metric:
    """The largest of a number of bytes; missing where one repeat has none."""
    values = [at(end, path) for end in ends]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return missing(reason_of(ends[values.index(None)], path))
    return Metric(max(known), "bytes", note=note)


def ratio(ends: Sequence[Data], path: str, scale: float, of: str, note: str) -> Metric:
    """Sum of a time over the sum of the windows."""
    values = [at(end, path) for end in ends]
    if None in values:
        return missing(reason_of(ends[values.index(None)], path))
    windows = sum(end["window"]["ns"] for end in ends)
    return Metric(scale * sum(values) / windows, of, note=note) if windows > 0 else missing("empty windows")


def share(ends: Sequence[Data], path: str, note: str) -> Metric:
    """Sum of a time over the sum of the windows, in percent."""
    return ratio(ends, path, 100.0, "%", note)


def mean_seconds(ends: Sequence[Data], path: str, many: str) -> Metric:
    """The mean of a time in nanoseconds, in seconds."""
    values = [at(end, path) for end in ends]
    if None in values:
        return missing(reason_of(ends[values.index(None)], path))
    return Metric(sum(values) / len(values) / 1e9, "s", note=f"mean {many}")
