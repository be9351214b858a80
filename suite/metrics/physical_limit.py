"""The share of a device's physical limit that a run reached: the roofline of its workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suite.contract import MEASURED_STEPS
from suite.log.model import Record
from suite.metrics.machine import device_name, devices
from suite.metrics.metric import Metric, missing
from suite.rules import load
from suite.workloads import specification


def physical_limit(record: Record) -> Metric:
    """The least time that the device needs for the work, in percent of the measured windows.

    That time is the larger of FLOP over dense peak and bytes over memory bandwidth, both from the workload's
    specification and the device table of the rules (roofline: Williams, Waterman, Patterson, CACM 2009).
    """
    if record.mode == "quality":
        return missing("the time of a quality run contains evaluations, which the analytic work leaves out")
    name = device_name(record)
    device = _peak_rates(record, name)
    if device is None:
        kind = "device" if devices(record) else "processor"
        return missing(f"the rules have no peak rates of this {kind} ({name or 'unnamed'})")
    peak = _number(device["flops"], record.key.precision)
    bandwidth = _number(device, "memory_bytes_per_s")
    if peak is None or bandwidth is None:
        return missing(f"the rules have no {record.key.precision} peak rate of {name}")
    windows = [repeat.window_ns for repeat in record.repeats if repeat.window_ns]
    if not windows:
        return missing("no repeat was completed")
    seconds = sum(windows) / len(windows) / 1e9
    try:
        spec = specification(record.key.workload)
        hundreds = int(record.header["measured_steps"]) / MEASURED_STEPS
        flop, moved = (hundreds * of(record.key) for of in (spec.window_flop, spec.window_bytes))
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
    return Metric(100 * max(compute, memory) / seconds, "%", note=note)


def _peak_rates(record: Record, name: str) -> Mapping[str, Any] | None:
    try:
        rules = load(str(record.header.data["rules"]["version"]))
    except ValueError:
        return None
    return rules.device(name)


def _number(table: Mapping[str, Any], name: str) -> float | None:
    return None if table.get(name) is None else float(table[name])
