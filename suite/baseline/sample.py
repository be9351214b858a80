"""The identity of the machine, and samples of its counters before and after each group of a baseline."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite.metrics.baseline import Cohort
from suite.telemetry import cgroup
from suite.telemetry.device_facts import device_facts
from suite.telemetry.nvml import Devices
from suite.telemetry.reading import Collector, Unavailable

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_CONSTANT = ("power_limit_mw", "power_limit_default_mw", "pcie_width", "pcie_width_max", "ecc")


def cohort_of(facts: Mapping[str, Any]) -> Cohort:
    """The kind of the machine with these :func:`suite.telemetry.facts.machine_facts`."""
    gpus: dict[str, int] = {}
    for device in (facts["accelerators"] or {}).get("devices", ()):
        name = device["name"] or "unnamed GPU"
        gpus[name] = gpus.get(name, 0) + 1
    return Cohort(facts["cpu"]["model"] or "unnamed processor", facts["cpu"]["threads"], gpus)


def sample(group: str, moment: str, devices: Devices, root: Path = Path("/")) -> dict[str, Any]:
    """The data of a ``conditions`` event (``moment``: before or after the group)."""
    collector = Collector()
    return {
        "group": group,
        "moment": moment,
        "cpu": _cpu(collector, root),
        "devices": _devices(collector, devices),
        "reasons": collector.reasons,
    }


def _cpu(collector: Collector, root: Path) -> dict[str, Any]:
    """Cores, limits, and ns of CPU time: of all processes, of this one and its children, and withheld."""
    ticks = [int(field) for field in (root / "proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _, _, irq, soft_irq, steal = ticks
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    limit = throttled = None
    try:
        group = cgroup.locate("self", root)
        (limits, no_limit), (usage, no_usage) = cgroup.limits(group), cgroup.usage(group)
        limit, throttled = limits["cpu_limit"], usage["cpu_throttled_ns"]
        reasons = {"limit": no_limit.get("cpu_limit"), "throttled_ns": no_usage.get("cpu_throttled_ns")}
    except Unavailable as problem:
        reasons = dict.fromkeys(("limit", "throttled_ns"), str(problem))
    for name, reason in reasons.items():
        if reason is not None:
            collector.missing(f"cpu.{name}", reason)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.sysconf("SC_NPROCESSORS_ONLN"),
        "limit": limit,
        "throttled_ns": throttled,
        "busy_ns": (user + nice + system + irq + soft_irq) * _TICK_NS,
        "steal_ns": steal * _TICK_NS,
        "suite_ns": round(sum(one.ru_utime + one.ru_stime for one in used) * 1e9),
    }


def _devices(collector: Collector, devices: Devices) -> list[dict[str, Any]] | None:
    """Counters, clocks, caps and PCIe width of each GPU."""
    read, reasons = devices.read(lambda pid: False)
    collector.include("devices", reasons)
    if read is None:
        return None
    facts, reasons = device_facts(devices)
    constant = (facts or {}).get("devices", [])
    for index, device in enumerate(read):
        device |= {name: constant[index][name] for name in _CONSTANT}
        for name in _CONSTANT:
            if (why := reasons.get(f"devices.{index}.{name}")) is not None:
                collector.missing(f"devices.{index}.{name}", why)
    return read
