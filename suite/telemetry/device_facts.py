"""Constant facts about the run's accelerators through NVML: one object for driver and devices."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from suite.telemetry.nvml import Devices, hash_uuid, text_of
from suite.telemetry.reading import Collector, Unavailable

Readings = dict[str, Callable[[], Any]]

_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


def device_facts(devices: Devices) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """``driver``, ``cuda``, ``nvml_digest``, ``confidential``, ``devices``; reasons (``""``: of the whole).

    Without chosen devices the list of devices is empty, and all other values are null with a reason.
    """
    if devices.reason is not None:
        return None, {"": devices.reason}
    collector = Collector()
    if not devices.handles:
        facts: dict[str, Any] = dict.fromkeys(("driver", "cuda", "nvml_digest", "confidential"))
        for name in facts:
            collector.missing(name, "the run uses no accelerator")
        return {**facts, "devices": []}, collector.reasons
    facts = _take(collector, _system(devices))
    facts["devices"] = []
    for index, handle in enumerate(devices.handles):
        device_collector = Collector()
        device = {
            "uuid": hash_uuid(devices.uuids[index]),
            **_take(device_collector, _device(devices, handle)),
        }
        facts["devices"].append(device)
        collector.include(f"devices.{index}", device_collector.reasons)
    return facts, collector.reasons


def _take(collector: Collector, readings: Readings) -> dict[str, Any]:
    return {name: collector.take(name, read) for name, read in readings.items()}


def _system(devices: Devices) -> Readings:
    nvml, call = devices.nvml, devices.call

    def cuda() -> str:
        number = call(nvml.nvmlSystemGetCudaDriverVersion)
        return f"{number // 1000}.{number % 1000 // 10}"

    return {
        "driver": lambda: text_of(call(nvml.nvmlSystemGetDriverVersion)),
        "cuda": cuda,  # the newest version that the driver supports
        "nvml_digest": _library_digest,
        "confidential": lambda: bool(call(nvml.nvmlSystemGetConfComputeState).ccFeature),
    }


def _device(devices: Devices, handle: Any) -> Readings:
    nvml = devices.nvml

    def get(name: str, *arguments: Any) -> Callable[[], Any]:
        # Looked up at the call: an older nvidia-ml-py may not have the function.
        def read() -> Any:
            function = getattr(nvml, name, None)
            if function is None:
                raise Unavailable(f"this nvidia-ml-py has no {name}")
            return devices.call(function, handle, *arguments)

        return read

    def both(name: str, which: int, convert: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: convert(get(name)()[which])

    return {
        "name": lambda: text_of(get("nvmlDeviceGetName")()),
        "memory_bytes": lambda: int(get("nvmlDeviceGetMemoryInfo")().total),
        "pci_device": lambda: f"{get('nvmlDeviceGetPciInfo')().pciDeviceId:08x}",
        "pci_bus": lambda: text_of(get("nvmlDeviceGetPciInfo")().busId).lower(),
        "vbios": lambda: text_of(get("nvmlDeviceGetVbiosVersion")()),
        "compute_capability": lambda: ".".join(map(str, get("nvmlDeviceGetCudaComputeCapability")())),
        "ecc": both("nvmlDeviceGetEccMode", 0, bool),
        "mig": both("nvmlDeviceGetMigMode", 0, bool),
        "persistence": lambda: bool(get("nvmlDeviceGetPersistenceMode")()),
        "compute_mode": lambda: _COMPUTE_MODES[get("nvmlDeviceGetComputeMode")()],
        "power_limit_mw": get("nvmlDeviceGetPowerManagementLimit"),
        "power_limit_default_mw": get("nvmlDeviceGetPowerManagementDefaultLimit"),
        "power_limit_min_mw": both("nvmlDeviceGetPowerManagementLimitConstraints", 0, int),
        "power_limit_max_mw": both("nvmlDeviceGetPowerManagementLimitConstraints", 1, int),
        "max_sm_clock_mhz": get("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "max_memory_clock_mhz": get("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        "application_sm_clock_mhz": get("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_SM),
        "sm_clock_offset_mhz": get("nvmlDeviceGetGpcClkVfOffset"),
        "memory_clock_offset_mhz": get("nvmlDeviceGetMemClkVfOffset"),
        # The current generation drops while a device idles, so it is not constant; the width is.
        "pcie_generation_max": get("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_max": get("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_width": get("nvmlDeviceGetCurrPcieLinkWidth"),
        "nvlink_links": partial(_nvlinks, devices, handle),
    }


def _nvlinks(devices: Devices, handle: Any) -> int:
    """The number of active NVLink links."""
    nvml = devices.nvml
    states: list[int] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(devices.call(nvml.nvmlDeviceGetNvLinkState, handle, link))
        except Unavailable:  # the device has no such link
            if not states:
                raise
            break
    return sum(states)


def _library_digest() -> str:
    """SHA-256 of the loaded NVML library, which a user can replace."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libnvidia-ml.so" in line:
            return hashlib.sha256(Path(line.split(None, 5)[5]).read_bytes()).hexdigest()
    raise Unavailable("no NVML library is loaded")
