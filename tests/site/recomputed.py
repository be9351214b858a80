"""The numbers of a result page, computed again from run.jsonl with the standard library alone.

It shares no code with the suite, so that a page and this script can only agree if both follow the log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

T_OVER_ROOT_5 = 1.242  # t(0.975, 4) / sqrt(5)
UNITS = {
    **dict.fromkeys(("alexnet", "googlenet", "inception_bn_small", "inception_v3"), "image"),
    **dict.fromkeys(("resnet50", "resnet50_cifar10", "resnet152", "vgg16", "faster_rcnn"), "image"),
    **dict.fromkeys(("gnmt", "lstm_ptb"), "token"),
    "ncf": "sample",
    "word2vec": "word",
}


def four_digits(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.3e}"


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def binary(value: float) -> str:
    for name, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f} B"


def milliseconds(value: float) -> str:
    return f"{four_digits(value * 1000)} µs" if value < 1 else f"{four_digits(value)} ms"


def nearest_rank(values: Iterable[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


class Log:
    """The events of one log of a run on one device."""

    def __init__(self, path: Path) -> None:
        self.events = [json.loads(line) for line in path.read_text().splitlines()]
        self.repeats: int = self.events[0]["data"]["repeats"]

    def all(self, kind: str, repeat: int | None = None) -> list[dict[str, Any]]:
        return [
            event["data"]
            for event in self.events
            if event["kind"] == kind and (repeat is None or event["repeat"] == repeat)
        ]

    def durations(self, repeat: int) -> list[int]:
        ends = [step["step_end_ns"] for step in self.all("step", repeat) if step["phase"] == "measured"]
        return [end - before for before, end in zip([0, *ends], ends, strict=False)]

    def samples(self) -> list[dict[str, Any]]:
        """All samples but the first of each soak."""
        kept = []
        for repeat in range(self.repeats):
            first = True
            for one in self.all("telemetry", repeat):
                if one["source"] == "sample":
                    if not (one["at"] == "soak" and first):
                        kept.append(one)
                    first = first and one["at"] != "soak"
        return kept

    def untimed_energy(self) -> tuple[int, int]:
        """(millijoules, ns) of the device between the first and last sample of each soak and tail of 2 s."""
        increase = span = 0
        for repeat in range(self.repeats):
            for at in ("soak", "tail"):
                samples = [
                    one
                    for one in self.all("telemetry", repeat)
                    if one["source"] == "sample" and one["at"] == at
                ]
                apart = samples[-1]["offset_ns"] - samples[0]["offset_ns"] if samples else 0
                if apart >= 2e9:
                    first, last = (one["devices"][0]["energy_mj"] for one in (samples[0], samples[-1]))
                    increase += last - first
                    span += apart
        return increase, span

    @property
    def workload(self) -> str:
        name: str = self.events[0]["data"]["key"]["workload"]
        return name

    def counter(self, of: str, name: str) -> tuple[int, int]:
        """(increase, ns) of a counter over all windows."""
        increase = span = 0
        for repeat in range(self.repeats):
            ends = [
                next(one for one in self.all("telemetry", repeat) if one["at"] == at)
                for at in ("window_open", "window_close")
            ]
            before, after = ((one["devices"][0] if of == "devices" else one[of])[name] for one in ends)
            increase += after - before
            span += ends[1]["offset_ns"] - ends[0]["offset_ns"]
        return increase, span


def numbers(path: Path) -> dict[str, list[str]]:
    """The texts that a page shows, by the ``data-metric`` of their cells, in their order."""
    log = Log(path)
    windows = [end["window"]["ns"] for end in log.all("repeat_end")]
    units = [end["units"] for end in log.all("repeat_end")]
    per_unit = [window / work for window, work in zip(windows, units, strict=True)]
    average = mean(per_unit)
    cv = math.sqrt(sum((one - average) ** 2 for one in per_unit) / max(log.repeats - 1, 1)) / average
    rate = 1e9 * sum(units) / sum(windows)
    steps = [ns / 1e6 for repeat in range(log.repeats) for ns in log.durations(repeat)]
    ends = log.all("rank_end")
    percentile = {percent: milliseconds(nearest_rank(steps, percent)) for percent in (50, 90, 99)}
    found = {
        "score": [four_digits(rate)],
        "interval": [
            four_digits(rate / (1 + T_OVER_ROOT_5 * cv)),
            four_digits(rate / (1 - T_OVER_ROOT_5 * cv)),
        ],
        "step_mean_ms": [milliseconds(sum(windows) / (log.repeats * 1e8))],
        "step_p50_ms": [percentile[50]] * 2,  # beside the score, and in the table of metrics
        "step_p90_ms": [percentile[90]],
        "step_p99_ms": [percentile[99]] * 2,
        "cv_percent": [f"{four_digits(100 * cv)} %"] * 2,
        "peak_host_memory_bytes": [binary(max(one["memory"]["peak_rss_bytes"] for one in ends))],
        "peak_device_memory_bytes": [binary(max(one["memory"]["peak_device_bytes"] for one in ends))],
        "setup_s": [f"{four_digits(mean([one['setup_ns'] for one in ends]) / 1e9)} s"],
        "compile_s": [f"{four_digits(mean([one['compile_ns'] for one in ends]) / 1e9)} s"],
        "input_wait_percent": [
            f"{four_digits(100 * sum(one['input_wait_ns'] for one in ends) / sum(windows))} %"
        ],
        "repeat_per_s": [four_digits(1e9 * work / ns) for work, ns in zip(units, windows, strict=True)],
        "repeat_window_s": [four_digits(ns / 1e9) for ns in windows],
        "repeat_units": [f"{work:,}" for work in units],
        "repeat_step_p50_ms": [
            four_digits(nearest_rank(log.durations(index), 50) / 1e6) for index in range(log.repeats)
        ],
    }
    if ends[0]["timestamp_kind"] == "host_dispatch":  # when steps were enqueued: no step has a time
        for name in ("step_p50_ms", "step_p90_ms", "step_p99_ms", "repeat_step_p50_ms"):
            del found[name]
    if log.repeats == 1:  # no spread
        del found["interval"], found["cv_percent"]
    trained = log.events[0]["data"]["key"]["phase"] == "train"
    return found | _of_machine(log, ends, windows) | (_losses(log) if trained else {})


def _losses(log: Log) -> dict[str, list[str]]:
    first = [float.fromhex(log.all("step", repeat)[0]["loss"]) for repeat in range(log.repeats)]
    last = []
    for repeat in range(log.repeats):
        steps = log.all("step", repeat)
        alike = min(range(len(steps) - 1, 0, -1), key=lambda at: abs(steps[at]["units"] - steps[0]["units"]))
        last.append(float.fromhex(steps[alike]["loss"]))
    return {"loss_first": [four_digits(mean(first))], "loss_last": [four_digits(mean(last))]}


def _of_machine(log: Log, ends: list[dict[str, Any]], windows: list[int]) -> dict[str, list[str]]:
    """Means of samples, and rates of counters."""
    sampled = {
        name: mean([one["devices"][0][name] for one in log.samples()])
        for name in (
            "utilisation_percent", "memory_utilisation_percent", "memory_used_bytes", "sm_clock_mhz",
            "temperature_c",
        )
    }  # fmt: skip
    energy, span = log.counter("devices", "energy_mj")
    power = 1e6 * energy / span
    work = sum(end["units"] for end in log.all("repeat_end"))
    if min(windows) >= 2e9:
        joules = energy / 1e3 / work
    else:  # the power of the untimed steps, the time of one, and the work of one
        spent, lasted = log.untimed_energy()
        step = sum(one["soak_ns"] for one in ends) / sum(one["soak_steps"] for one in ends)
        joules = (spent / 1e3 / lasted) * step * (100 * log.repeats / work)
        power = 1e6 * spent / lasted
    worker = sum(one["cpu_time_ns"] for one in ends) / sum(windows)
    usage, usage_span = log.counter("host", "cpu_usage_ns")
    threads = log.all("env")[0]["facts"]["cpu"]["threads"]
    reads, reads_span = log.counter("processes", "read_bytes")
    resident = mean([one["processes"]["rss_bytes"] for one in log.samples()])
    jpeg = {}
    if log.events[0]["data"]["key"]["data"] == "real":
        used = mean([one["devices"][0]["jpeg_utilisation_percent"] for one in log.samples()])
        jpeg["jpeg_engine_percent"] = [f"{four_digits(used)} %"]
    return jpeg | {
        "gpu_utilisation_percent": [
            f"{four_digits(sampled['utilisation_percent'])} %",
            four_digits(sampled["utilisation_percent"]),
        ],
        "gpu_power_w": [f"{four_digits(power)} W"] * 2 + [four_digits(power)],
        "energy_devices_j_per_unit": [f"{four_digits(joules)} J/{UNITS[log.workload]}"],
        "gpu_sm_clock_mhz": [f"{four_digits(sampled['sm_clock_mhz'])} MHz"],
        "gpu_temperature_c": [f"{four_digits(sampled['temperature_c'])} °C"],
        "gpu_memory_controller_percent": [four_digits(sampled["memory_utilisation_percent"])],
        "gpu_memory_used_bytes": [four_digits(sampled["memory_used_bytes"] / 2**30)],
        "cpu_worker_cores": [f"{four_digits(worker)} cores"],
        "cpu_host_cores": [f"{four_digits(usage / usage_span)} cores"],
        "cpu_percent": [four_digits(100 * worker / threads)],
        "host_memory_bytes": [four_digits(resident / 2**30)],
        "disk_read_mb_per_s": [four_digits(1e3 * reads / reads_span)],
    }
