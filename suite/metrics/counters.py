"""Use of CPUs and GPUs in the windows, from counters at window start and end and from samples at 1 Hz."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from suite.log.model import Data, Event, Repeat
from suite.log.units import count
from suite.metrics.energy import NO_DEVICE, device_power
from suite.metrics.machine import at
from suite.metrics.metric import Metric, end_of, missing, ratio, reason_of

_THROTTLES = ("sw_thermal", "hw_thermal", "hw_power_brake")
_GPU = (
    "gpu_utilisation_percent",
    "gpu_power_w",
    "gpu_sm_clock_mhz",
    "gpu_temperature_c",
    "gpu_throttled_percent",
)


def cpu(done: Sequence[Repeat], reports: Sequence[Data]) -> dict[str, Metric]:
    """CPU cores used by the ranks and by all processes, and the share of the time with throttling."""
    source = f"counters over {count(len(done), 'window')}"
    ranks = len(reports) / len(done)
    metrics = {"cpu_worker_cores": ratio(reports, "cpu_time_ns", ranks, "cores", f"mean, {source}")}
    for name, path, scale, unit, what in (
        ("cpu_host_cores", "host.cpu_usage_ns", 1.0, "cores", "processes of the control group; mean"),
        ("cpu_throttled_percent", "host.cpu_throttled_ns", 100.0, "%", "of the time, summed over processors"),
    ):
        found = deltas(done, path)
        metrics[name] = (
            found
            if isinstance(found, Metric)
            else Metric(scale * rate(found), unit, note=f"{what}, {source}")
        )
    return metrics


def rate(deltas: Sequence[tuple[int, int]]) -> float:
    """Increase of a counter per ns, over all windows: the mean of the nodes or devices."""
    return sum(increase for increase, _ in deltas) / sum(ns for _, ns in deltas)


def gpu(done: Sequence[Repeat]) -> dict[str, Metric]:
    """Utilisation, power, clock, temperature and throttling of the devices; missing values have reasons."""
    opened = next((event for repeat in done if (event := repeat.counters("window_open"))), None)
    if opened is None:
        return dict.fromkeys(_GPU, missing("telemetry counters are not in the log"))
    devices = opened.data["devices"]
    if devices is None:
        return dict.fromkeys(_GPU, missing(reason_of(opened.data, "devices")))
    if not devices:
        return dict.fromkeys(_GPU, missing(NO_DEVICE))
    power = device_power(done)
    throttle_times = [_device_deltas(done, f"throttle_ns.{name}") for name in _THROTTLES]
    known = [one for one in throttle_times if not isinstance(one, Metric)]
    throttled = (
        Metric(
            100 * max(map(rate, known)),
            "%",
            note=f"of the time by heat or power brake, counters over {count(len(done), 'window')}",
        )
        if len(known) == len(throttle_times)
        else next(metric for metric in throttle_times if isinstance(metric, Metric))
    )
    return {
        "gpu_utilisation_percent": sampled(done, "utilisation_percent", 1.0, "%"),
        "gpu_power_w": power if power.value is not None else sampled(done, "power_mw", 1e-3, "W"),
        "gpu_sm_clock_mhz": sampled(done, "sm_clock_mhz", 1.0, "MHz"),
        "gpu_temperature_c": sampled(done, "temperature_c", 1.0, "°C"),
        "gpu_throttled_percent": throttled,
    }


def deltas(done: Sequence[Repeat], path: str) -> list[tuple[int, int]] | Metric:
    """(increase of a counter, ns between its readings) of each window; a missing metric if one is null."""
    return _increases(done, lambda data: [(at(data, path), path)])


def _device_deltas(done: Sequence[Repeat], path: str) -> list[tuple[int, int]] | Metric:
    """As :func:`deltas`, for a counter of each device."""
    return _increases(
        done,
        lambda data: [
            (at(device, path), f"devices.{i}.{path}") for i, device in enumerate(data["devices"] or ())
        ],
    )


def _increases(
    done: Sequence[Repeat], read: Callable[[Data], list[tuple[int | None, str]]]
) -> list[tuple[int, int]] | Metric:
    increases = []
    for repeat, (opened, closed) in ((one, pair) for one in done for pair in one.counter_pairs()):
        if opened is None or closed is None:
            return missing(f"repeat {repeat.index} has no counters at window start and end")
        first, last = read(opened.data), read(closed.data)
        if len(first) != len(last):
            event = opened if opened.data["devices"] is None else closed
            return missing(reason_of(event.data, "devices"))
        span = closed.data["offset_ns"] - opened.data["offset_ns"]
        for (before, path), (after, _) in zip(first, last, strict=True):
            if before is None or after is None:
                return missing(reason_of(opened.data if before is None else closed.data, path))
            if span <= 0:
                return missing("the counters of window start and end have the same time")
            increases.append((after - before, span))
    return increases or missing("no device has this counter")


def sampled(done: Sequence[Repeat], name: str, scale: float, unit: str, *, of: str = "devices") -> Metric:
    """Mean of the samples of all devices over soaks, windows and the telemetry tail.

    Without the first sample of each soak on each node: devices report means of up to a second, here from
    before the steps.
    ``of`` names another part of a sample instead of the devices: "host" or "processes".
    """
    found = {
        at: _values((one for repeat in done for one in _steady(repeat, at)), name, of)
        for at in ("window", "soak", "tail")
    }
    values = [value for some in found.values() for value in some]
    if not values:
        reasons = end_of(done[0]).get("reasons", {})
        reason = next(
            (
                text
                for path, text in reasons.items()
                if path.startswith(f"telemetry.{of}") and path.endswith(name)
            ),
            None,
        )
        absent = f"no 1 Hz sample in a soak, a window or the telemetry tail states {name}"
        return missing(str(reason or absent))
    where = f"{len(found['window'])} in {count(len(done), 'window')}"
    where += f", {len(found['soak'])} in the soaks" if found["soak"] else ""
    where += f", {len(found['tail'])} in the tail" if found["tail"] else ""
    note = f"mean of {len(values)} samples at 1 Hz: {where}"
    return Metric(scale * sum(values) / len(values), unit, note=note)


def _steady(repeat: Repeat, at: str) -> list[Event]:
    """The samples ``at`` a part of ``repeat``, of a soak without the first of each node."""
    samples = repeat.samples(at)
    first = {one.data["node"]: one for one in reversed(samples)} if at == "soak" else {}
    return [one for one in samples if one is not first.get(one.data["node"])]


def _values(samples: Iterable[Event], name: str, of: str) -> list[int]:
    parts = (part for sample in samples for part in _parts(sample.data[of]))
    return [part[name] for part in parts if at(part, name) is not None]


def _parts(value: Any) -> Sequence[Data]:
    """The devices of a sample, or its host or processes as the only part."""
    return value if isinstance(value, list) else [value] if value else []
