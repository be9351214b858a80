"""Why this speed: one line that sets a result against the physical limit and names what slowed it down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suite.record.model import Record
from suite.record.safe import safe
from suite.report.figure import Figure, missing
from suite.report.figures import drift_percent, figures
from suite.report.machine import device_name, devices
from suite.rules import load
from suite.workloads import specification


def why(record: Record) -> str:
    """One line: share of the physical limit, waiting for input, throttling, drift. Unknown parts say why."""
    found = figures(record)
    if not found:
        return "no repeat was completed"
    if record.key.phase == "preprocess":
        parts = [_moved(found), _throttled(found)]
    else:
        parts = [
            _limit(physical_limit(record)),
            _part(found["input_wait_percent"], "waited for input {} of the window", "input wait unknown"),
            _throttled(found),
        ]
    if record.mode != "quality" and record.key.phase != "preprocess":
        parts.append(_drift(drift_percent(record)))
    return "; ".join(parts)


def physical_limit(record: Record) -> Figure:
    """Share of the time that the device could not have done without, in percent of the measured windows.

    The bound is the larger of FLOP over dense peak and bytes over memory bandwidth, both from the workload's
    specification and the device table of the rules (roofline: Williams, Waterman, Patterson, CACM 2009).
    """
    if record.mode == "quality":
        return missing("a training span holds evaluations, which the model of work leaves out")
    name = device_name(record)
    device = _limits_of(record, name)
    if device is None:
        kind = "device" if devices(record) else "processor"
        return missing(f"the rules hold no peak figures of this {kind} ({name or 'unnamed'})")
    peak = _number(device["flops"], record.key.precision)
    bandwidth = _number(device, "memory_bytes_per_s")
    if peak is None or bandwidth is None:
        return missing(f"the rules hold no {record.key.precision} peak of {name}")
    done = [repeat.window_ns for repeat in record.repeats if repeat.window_ns]
    if not done:
        return missing("no repeat was completed")
    seconds = sum(done) / len(done) / 1e9
    try:
        spec = specification(record.key.workload)
        flop, moved = spec.window_flop(record.key), spec.window_bytes(record.key)
    except ValueError as error:
        return missing(str(error))
    devices_used = record.key.devices
    compute = flop / (peak * devices_used)
    memory = moved / (bandwidth * devices_used)
    bound = "compute" if compute >= memory else "memory"
    tera = 1e12 * seconds * devices_used
    note = (
        f"{bound} bound of {name}: {flop / tera:.3g} of {peak / 1e12:g} TFLOP/s {record.key.precision}, "
        f"at least {moved / tera:.3g} of {bandwidth / 1e12:g} TB/s"
    )
    return Figure(100 * max(compute, memory) / seconds, "%", note=note)


def _moved(found: Mapping[str, Figure]) -> str:
    """What a conversion read and wrote, and the processor time that it took."""
    read, written = found["files_read_mb_per_s"], found["shards_written_mb_per_s"]
    cores = found["cpu_worker_cores"]
    used = "an unknown share of the cores" if cores.value is None else f"{cores.value:.3g} cores"
    if read.value is None or written.value is None:
        return f"bytes unknown: {safe(read.reason)}"
    return f"{read.value:,.4g} MB/s read and {written.value:,.4g} MB/s written with {used}"


def _limits_of(record: Record, name: str) -> Mapping[str, Any] | None:
    try:
        rules = load(str(record.header.data["rules"]["version"]))
    except ValueError:
        return None
    return rules.device(name)


def _number(table: Mapping[str, Any], name: str) -> float | None:
    return None if table.get(name) is None else float(table[name])


def _limit(share: Figure) -> str:
    if share.value is None:
        return f"share of the physical limit unknown: {safe(share.reason)}"
    return f"{_percent(share.value)} of the physical limit ({safe(share.note, 160)})"


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 100 else f"{value:.3g} %"


def _part(figure: Figure, text: str, unknown: str) -> str:
    return (
        f"{unknown}: {safe(figure.reason)}" if figure.value is None else text.format(_percent(figure.value))
    )


def _throttled(found: Mapping[str, Figure]) -> str:
    gpu, cpu = found["gpu_throttled_percent"], found["cpu_throttled_percent"]
    known = [
        (name, figure.value) for name, figure in (("GPU", gpu), ("CPU", cpu)) if figure.value is not None
    ]
    if not known:
        return f"throttled time unknown: {safe(cpu.reason)}"
    slowed = [f"{name} {_percent(value)}" for name, value in known if value > 0]
    return (
        f"throttled: {', '.join(slowed)}"
        if slowed
        else f"no throttling of {' and '.join(n for n, _ in known)}"
    )


def _drift(drift: Figure) -> str:
    if drift.value is None:
        return f"drift within the window unknown: {safe(drift.reason)}"
    value = drift.value
    if abs(value) < 0.05:
        return "last steps as fast as the first"
    word = "slower" if value > 0 else "faster"
    return f"last steps {_percent(abs(value))} {word} than the first"
