"""The GPUs themselves: on the bus, under a driver, readable, and free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from suite.doctor.model import FAIL, OK, SKIP, WARN, Check, Subject, gigabytes
from suite.telemetry.nvml import Devices
from suite.telemetry.reading import Unavailable, read_text

_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor; class of display and compute controllers


def driver(subject: Subject) -> Iterator[Check]:
    """From the PCI bus to NVML: where the way to a GPU ends."""
    name = "GPU driver"
    gpus = subject.machine.gpus
    if gpus:
        each = ", ".join(f"{gpu.name} ({gpu.capability}, {gigabytes(gpu.memory_bytes)})" for gpu in gpus)
        yield Check(name, OK, f"driver {subject.machine.driver}, {len(gpus)} GPU: {each}")
        return
    on_bus, loaded = on_the_bus(subject.root), (subject.root / "proc/driver/nvidia/version").exists()
    if subject.machine.driver is not None and subject.machine.visible is not None:
        fix = "unset CUDA_VISIBLE_DEVICES, or set it to a GPU of this machine"
        yield Check(name, FAIL, f"CUDA_VISIBLE_DEVICES={subject.machine.visible} shows no GPU", fix)
    elif loaded:
        reason = Devices(("0",)).reason or "NVML lists no GPU"
        fix = "reboot or reload the driver: its module and its library must be of one version"
        yield Check(name, FAIL, f"the driver is loaded, and NVML cannot be read: {reason}", fix)
    elif on_bus:
        fix = "install NVIDIA's driver for this kernel (580 or newer for the current PyTorch image)"
        yield Check(name, FAIL, f"{on_bus} NVIDIA GPU on the PCI bus, and no driver is loaded", fix)
    else:
        yield Check(name, SKIP, "no NVIDIA GPU: runs use the CPU, at mini scale")


def on_the_bus(root: Path) -> int:
    """How many display or compute controllers of NVIDIA the PCI bus has, driver or not."""
    found = 0
    for folder in (root / "sys/bus/pci/devices").glob("*"):
        try:
            ours = read_text(folder / "vendor") == _NVIDIA
            found += ours and read_text(folder / "class").startswith(_DISPLAY)
        except OSError:
            continue
    return found


def quiet(subject: Subject) -> Iterator[Check]:
    """Settings of each GPU that cost speed or runs, and processes of others on it."""
    gpus = subject.machine.gpus
    if not gpus:
        yield Check("GPU state", SKIP, "no GPU")
        return
    devices = Devices([gpu.uuid for gpu in gpus])
    if devices.reason is not None:
        yield Check("GPU state", FAIL, devices.reason, "see the check of the driver")
        return
    for at, handle in enumerate(devices.handles):
        yield from _of_one(devices, handle, f"GPU {at}")


def _of_one(devices: Devices, handle: Any, name: str) -> Iterator[Check]:
    nvml = devices.nvml
    prohibited = nvml.NVML_COMPUTEMODE_PROHIBITED
    if _ask(devices, "nvmlDeviceGetComputeMode", handle) == prohibited:
        yield Check(f"{name} mode", FAIL, "compute mode is prohibited", "sudo nvidia-smi -c DEFAULT")
    if _ask(devices, "nvmlDeviceGetPersistenceMode", handle) == 0:
        what = "persistence mode is off: the driver is set up anew for every run"
        yield Check(f"{name} persistence", WARN, what, "sudo nvidia-smi -pm 1")
    running = _ask(devices, "nvmlDeviceGetComputeRunningProcesses", handle)
    if running is None:
        yield Check(f"{name} processes", SKIP, "NVML does not tell what computes on it")
        return
    foreign = [_name_of(process.pid) for process in running if process.pid != os.getpid()]
    if foreign:
        what = f"others compute on it ({len(foreign)}): {', '.join(sorted(set(foreign))[:5])}"
        yield Check(f"{name} processes", WARN, what, "end them, or choose another: DEVICES=[…]")
    else:
        yield Check(f"{name} processes", OK, "nothing else computes on it")


def _ask(devices: Devices, call: str, handle: Any) -> Any:
    try:
        return devices.call(getattr(devices.nvml, call), handle)
    except Unavailable:
        return None


def _name_of(pid: int) -> str:
    """A process's name; never its arguments, which may hold anything."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "not visible from here"
