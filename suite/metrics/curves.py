"""Step times and telemetry samples of a run as numbers for figures: JSON values, nulls with their reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from suite.log.model import Data, Event, Record, Repeat
from suite.metrics.machine import at
from suite.metrics.metric import end_of, reason_of

_MOST = 600  # samples of one device or host in a figure
# name -> (label, unit, path in a sample, factor)
_OF_DEVICE = {
    "gpu_power": ("GPU power", "W", "power_mw", 1e-3),
    "gpu_clock": ("GPU clock (SM)", "MHz", "sm_clock_mhz", 1),
    "gpu_utilisation": ("GPU utilisation", "%", "utilisation_percent", 1),
    "gpu_memory_utilisation": ("GPU memory controller utilisation", "%", "memory_utilisation_percent", 1),
    "gpu_memory": ("GPU memory used", "bytes", "memory_used_bytes", 1),
    "gpu_temperature": ("GPU temperature", "°C", "temperature_c", 1),
}
_OF_HOST = {
    "host_memory": ("host memory", "bytes", "host.memory_bytes", 1),
    "rank_memory": ("memory of the ranks", "bytes", "processes.rss_bytes", 1),
}
# Counters: their increase per second between two samples.
_RATES = {
    "host_cpu": ("host processors", "cores", "host.cpu_usage_ns", 1e-9),
    "rank_cpu": ("processors used by the ranks", "cores", "processes.cpu_time_ns", 1e-9),
    "disk_read": ("disk reads", "MB/s", "host.io_read_bytes", 1e-6),
    "disk_write": ("disk writes", "MB/s", "host.io_write_bytes", 1e-6),
}
TELEMETRY = (*_OF_DEVICE, *_RATES, *_OF_HOST)


def curves_of(record: Record) -> dict[str, Any]:
    """The curves of a run.

    ``steps_ns``: by repeat and rank, the durations of the measured steps in ns; empty, with ``steps_reason``,
    where timestamps do not state when a step ended. ``windows`` and ``phases`` (soak and telemetry tail):
    start and end in s on the run's clock. ``telemetry`` by name: label, unit, reason, and series of (name,
    and by repeat the list of (time in s, value or null)); ``every``: only every n-th sample is included.
    """
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    steps, why = _steps(record, done)
    samples = [repeat.all_samples for repeat in done]
    every = 1 + max((len(some) for some in samples), default=0) * len(done) // (_MOST + 1)
    windows = [_seconds(end["window"]["close_ns"] - end["window"]["ns"], end["window"]["close_ns"])
               for end in map(end_of, done) if end["window"]]  # fmt: skip
    return {
        "steps_ns": steps,
        "steps_reason": why,
        "windows": windows,
        "phases": [span for some in samples for at_ in ("soak", "tail") if (span := _span(some, at_))],
        "telemetry": {name: _telemetry(name, done, every) for name in TELEMETRY},
        "every": every,
    }


def _steps(record: Record, done: Sequence[Repeat]) -> tuple[list[list[list[int]]], str]:
    if not record.computes or record.mode == "quality":
        return [], "only throughput runs of a benchmark have measured steps"
    if not record.pooled_ns:
        return [], f"timestamps of kind {record.timestamp_kind} do not state when a step ended"
    return [[list(repeat.durations_ns(rank)) for rank in repeat.ranks] for repeat in done], ""


def _seconds(start: int, end: int) -> list[float]:
    return [start / 1e9, end / 1e9]


def _span(samples: Sequence[Event], phase: str) -> list[float] | None:
    """Times of the first and the last sample of a phase."""
    times = [event["offset_ns"] for event in samples if event["at"] == phase]
    return _seconds(min(times), max(times)) if times else None


def _telemetry(name: str, done: Sequence[Repeat], every: int) -> dict[str, Any]:
    kind: Mapping[str, tuple[str, str, str, float]]
    kind = next(table for table in (_OF_DEVICE, _OF_HOST, _RATES) if name in table)
    label, unit, path, factor = kind[name]
    series: dict[str, list[list[tuple[float, float | None]]]] = {}
    for index, repeat in enumerate(done):
        for one, points in _points(repeat, path, kind is _OF_DEVICE, kind is _RATES).items():
            repeats = series.setdefault(one, [[] for _ in done])
            repeats[index] = [
                (ns / 1e9, None if value is None else value * factor) for ns, value in points[::every]
            ]
    known = any(value is not None for repeats in series.values() for points in repeats for _, value in points)
    return {
        "label": label,
        "unit": unit,
        "reason": "" if known else _reason(done, path, kind is _OF_DEVICE, bool(series)),
        "series": [{"name": one, "repeats": repeats} for one, repeats in series.items()] if known else [],
    }


def _points(
    repeat: Repeat, path: str, of_device: bool, rate: bool
) -> dict[str, list[tuple[int, float | None]]]:
    """(time in ns, value) of each sample, by device or host."""
    found: dict[str, list[tuple[int, float | None]]] = {}
    nodes = 1 if repeat.start is None else int(repeat.start["nodes"])
    for sample in repeat.all_samples:
        node = f"node {sample['node']}" if nodes > 1 else ""
        for one, holder in _holders(sample.data, of_device):
            name = ", ".join(filter(None, (node, one)))
            found.setdefault(name, []).append((sample["offset_ns"], at(holder, path)))
    if rate:
        return {name: list(_increases(points)) for name, points in found.items()}
    return found


def _holders(sample: Data, of_device: bool) -> list[tuple[str, Data]]:
    if not of_device:
        return [("", sample)]
    devices = sample["devices"] or ()
    return [(f"GPU {index}" if len(devices) > 1 else "", device) for index, device in enumerate(devices)]


def _increases(points: Sequence[tuple[int, float | None]]) -> Iterator[tuple[int, float | None]]:
    """Increase per second of a counter between neighbouring samples, at the time of the later one."""
    for (before, first), (after, last) in pairwise(points):
        if after > before:
            yield after, None if first is None or last is None else (last - first) * 1e9 / (after - before)


def _reason(done: Sequence[Repeat], path: str, of_device: bool, sampled: bool) -> str:
    """Why no sample has a value: its reason, in the events at the ends of repeats, is that of all samples."""
    if not sampled:
        reasons = end_of(done[0]).get("reasons", {})
        return str(reasons.get("telemetry.devices", "the run has no samples of it"))
    return reason_of(end_of(done[0]), f"telemetry.{'devices.0.' * of_device}{path}")
