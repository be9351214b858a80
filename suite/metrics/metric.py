"""One metric, a number with its unit or the reason without one, and its computation from repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.log.model import Data, Event, Repeat
from suite.metrics.machine import at


@dataclass(frozen=True, slots=True)
class Metric:
    """One number with its unit; ``reason`` explains a missing value, ``note`` how a value was computed."""

    value: float | int | None
    unit: str = ""
    reason: str = ""
    note: str = ""


def missing(reason: str) -> Metric:
    """A metric that could not be measured."""
    return Metric(None, reason=reason)


def reason_of(data: Data, path: str) -> str:
    """Why the field at ``path`` of an event's data, or an object around it, is null."""
    reasons = data.get("reasons", {})
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if reason := reasons.get(".".join(parts[:length])):
            return str(reason)
    return f"{path} is not in the log"


def end_of(repeat: Repeat) -> Data:
    """The data of the event at the end of the repeat; empty if it was not completed."""
    return repeat.end.data if repeat.end is not None else {}


def reason_of_reading(repeat: Repeat, event: Event, path: str) -> str:
    """Why a field of a telemetry event is null: of a sample, the reason is in the repeat_end."""
    if event["source"] == "sample":
        return reason_of(end_of(repeat), f"telemetry.{path}").replace("telemetry.", "", 1)
    return reason_of(event.data, path)


def largest(groups: Sequence[Sequence[Data]], path: str, note: str) -> Metric:
    """The largest sum of bytes of a group of events; missing if one event has none."""
    sums = []
    for group in groups:
        values = [at(event, path) for event in group]
        if None in values:
            return missing(reason_of(group[values.index(None)], path))
        sums.append(sum(values))
    return Metric(max(sums), "bytes", note=note)


def ratio(ends: Sequence[Data], path: str, scale: float, unit: str, note: str) -> Metric:
    """``scale`` times the sum of a time over the sum of the windows, in ``unit``."""
    values = [at(end, path) for end in ends]
    if None in values:
        return missing(reason_of(ends[values.index(None)], path))
    windows = sum(end["window"]["ns"] for end in ends)
    if windows <= 0:
        return missing("the windows have no length")
    return Metric(scale * sum(values) / windows, unit, note=note)


def mean_seconds(ends: Sequence[Data], path: str, many: str) -> Metric:
    """The mean of a time in nanoseconds, in seconds."""
    values = [at(end, path) for end in ends]
    if None in values:
        return missing(reason_of(ends[values.index(None)], path))
    return Metric(sum(values) / len(values) / 1e9, "s", note=f"mean {many}")
