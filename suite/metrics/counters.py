"""What the machine did in the windows, from counters at their edges and samples at 1 Hz."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from suite.log.model import Data, Event, Repeat
from suite.log.units import count
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
    """Processor cores used, by the ranks and by all; and how much of the time they were held back."""
    edges = f"counters over {count(len(done), 'window')}"
    found = {
        "cpu_worker_cores": ratio(reports, "cpu_time_ns", len(reports) / len(done), "cores", f"mean, {edges}")
    }
    used = _deltas(done, "host.cpu_usage_ns")
    throttled = _deltas(done, "host.cpu_throttled_ns")
    for name, deltas, scale, of, what in (
        ("cpu_host_cores", used, 1.0, "cores", "processes of the control group; mean"),
        ("cpu_throttled_percent", throttled, 100.0, "%", "of the time"),
    ):
        found[name] = (
            deltas
            if isinstance(deltas, Metric)
            else Metric(
                scale * sum(d for d, _ in deltas) / sum(t for _, t in deltas), of, note=f"{what}, {edges}"
            )
        )
    return found


def gpu(done: Sequence[Repeat]) -> dict[str, Metric]:
    """Utilisation, power, clock, temperature and throttling of the devices; reasons where there are none."""
    edges = [edge for repeat in done if (edge := repeat.counters("window_open"))]
    if not edges:
        return dict.fromkeys(_GPU, missing("telemetry counters are not in the log"))
    counted = edges[0].data["devices"]
    if counted is None:
        return dict.fromkeys(_GPU, missing(reason_of(edges[0].data, "devices")))
    if not counted:
        return dict.fromkeys(_GPU, missing("no accelerator in this run"))
    energy = _device_deltas(done, "energy_mj")
    power = (
        _sampled(done, "power_mw", 1e-3, "W")
        if isinstance(energy, Metric)
        else Metric(
            1e6 * sum(d for d, _ in energy) / sum(t for _, t in energy),
            "W",
            note=f"mean of each device, energy counter over {count(len(done), 'window')}",
        )
    )
    slowed = [_device_deltas(done, f"throttle_ns.{name}") for name in _THROTTLES]
    known = [deltas for deltas in slowed if not isinstance(deltas, Metric)]
    throttled = (
        Metric(
            100 * max(sum(d for d, _ in deltas) / sum(t for _, t in deltas) for deltas in known),
            "%",
            note=f"of the time by heat or power brake, counters over {count(len(done), 'window')}",
        )
        if len(known) == len(slowed)
        else next(figure for figure in slowed if isinstance(figure, Metric))
    )
    return {
        "gpu_utilisation_percent": _sampled(done, "utilisation_percent", 1.0, "%"),
        "gpu_power_w": power,
        "gpu_sm_clock_mhz": _sampled(done, "sm_clock_mhz", 1.0, "MHz"),
        "gpu_temperature_c": _sampled(done, "temperature_c", 1.0, "°C"),
        "gpu_throttled_percent": throttled,
    }


def _deltas(done: Sequence[Repeat], path: str) -> list[tuple[int, int]] | Metric:
    """(increase of a counter, ns between its reads) of each window; where one is null, the reason."""
    return _increases(done, lambda data: [(at(data, path), path)])


def _device_deltas(done: Sequence[Repeat], path: str) -> list[tuple[int, int]] | Metric:
    """The same for a counter of every device."""
    return _increases(
        done,
        lambda data: [
            (at(device, path), f"devices.{i}.{path}") for i, device in enumerate(data["devices"] or ())
        ],
    )


def _increases(
    done: Sequence[Repeat], read: Callable[[Data], list[tuple[int | None, str]]]
) -> list[tuple[int, int]] | Metric:
    found = []
    for repeat in done:
        opened, closed = repeat.counters("window_open"), repeat.counters("window_close")
        if opened is None or closed is None:
            return missing(f"repeat {repeat.index} has no counters at its window's edges")
        span = closed.data["offset_ns"] - opened.data["offset_ns"]
        for (before, path), (after, _) in zip(read(opened.data), read(closed.data), strict=False):
            if before is None or after is None:
                return missing(reason_of(opened.data if before is None else closed.data, path))
            if span <= 0:
                return missing("the counters were read at the same moment")
            found.append((after - before, span))
    return found or missing("no device has this counter")


def _sampled(done: Sequence[Repeat], name: str, scale: float, of: str) -> Metric:
    """Mean of a device's samples over the windows and, where there is one, the untimed tail."""
    inside = _values((sample for repeat in done for sample in repeat.samples("window")), name)
    behind = _values((sample for repeat in done for sample in repeat.samples("tail")), name)
    values = inside + behind
    if not values:
        reasons = end_of(done[0]).get("reasons", {})
        told = next(
            (
                text
                for path, text in reasons.items()
                if path.startswith("telemetry.devices") and path.endswith(name)
            ),
            None,
        )
        return missing(str(told or "no 1 Hz sample fell into a window or a tail"))
    where = f"{len(inside)} in {count(len(done), 'window')}" + (
        f", {len(behind)} in the tail" if behind else ""
    )
    return Metric(
        scale * sum(values) / len(values), of, note=f"mean of {len(values)} samples at 1 Hz: {where}"
    )


def _values(samples: Iterable[Event], name: str) -> list[int]:
    devices = (device for sample in samples for device in sample.data["devices"] or ())
    return [device[name] for device in devices if at(device, name) is not None]
