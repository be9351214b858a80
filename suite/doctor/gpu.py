"""The GPUs: on the PCI bus, with a driver, readable by NVML, and free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject, gigabytes
from suite.telemetry.nvml import Devices
from suite.telemetry.reading import Unavailable, read_text

_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor; class of display and compute controllers


def driver(subject: Subject) -> Iterator[DoctorCheck]:
    """Whether PCI bus, driver and NVML list the GPUs."""
    name = "GPU driver"
    gpus = subject.machine.gpus
    if gpus:
        each = ", ".join(f"{gpu.name} ({gpu.capability}, {gigabytes(gpu.memory_bytes)})" for gpu in gpus)
        yield DoctorCheck(name, OK, f"driver {subject.machine.driver}, {len(gpus)} GPU: {each}")
        return
    on_bus, loaded = on_the_bus(subject.root), (subject.root / "proc/driver/nvidia/version").exists()
    if subject.machine.driver is not None and subject.machine.visible is not None:
        fix = "unset CUDA_VISIBLE_DEVICES, or set it to a GPU of this machine"
        yield DoctorCheck(name, FAIL, f"CUDA_VISIBLE_DEVICES={subject.machine.visible} shows no GPU", fix)
    elif loaded:
        reason = Devices(("0",)).reason or "NVML lists no GPU"
        fix = "reboot or reload the driver: its module and its library must be of one version"
        yield DoctorCheck(name, FAIL, f"the driver is loaded, but NVML cannot be read: {reason}", fix)
    elif on_bus:
        fix = "install NVIDIA's driver for this kernel (580 or newer for the current PyTorch image)"
        yield DoctorCheck(name, FAIL, f"{on_bus} NVIDIA GPU on the PCI bus, but no driver is loaded", fix)
    else:
        yield DoctorCheck(name, SKIP, "no NVIDIA GPU: runs use the CPU, at mini scale")


def on_the_bus(root: Path) -> int:
    """The number of NVIDIA display or compute controllers on the PCI bus, with or without a driver."""
    found = 0
    for folder in (root / "sys/bus/pci/devices").glob("*"):
        try:
            found += read_text(folder / "vendor") == _NVIDIA and read_text(folder / "class").startswith(
                _DISPLAY
            )
        except OSError:
            continue
    return found


def state(subject: Subject) -> Iterator[DoctorCheck]:
    """Settings of each GPU that prevent or slow down runs, and other processes on it."""
    gpus = subject.machine.gpus
    if not gpus:
        yield DoctorCheck("GPU state", SKIP, "no GPU")
        return
    devices = Devices([gpu.uuid for gpu in gpus])
    if devices.reason is not None:
        yield DoctorCheck("GPU state", FAIL, devices.reason, "see the check of the driver")
        return
    for at, handle in enumerate(devices.handles):
        yield from _of_one(devices, handle, f"GPU {at}")


def _of_one(devices: Devices, handle: Any, name: str) -> Iterator[DoctorCheck]:
    nvml = devices.nvml
    prohibited = nvml.NVML_COMPUTEMODE_PROHIBITED
    if _ask(devices, "nvmlDeviceGetComputeMode", handle) == prohibited:
        yield DoctorCheck(f"{name} mode", FAIL, "compute mode is prohibited", "sudo nvidia-smi -c DEFAULT")
    if _ask(devices, "nvmlDeviceGetPersistenceMode", handle) == 0:
        found = "persistence mode is off: the driver initialises the GPU again for every run"
        yield DoctorCheck(f"{name} persistence", WARN, found, "sudo nvidia-smi -pm 1")
    running = _ask(devices, "nvmlDeviceGetComputeRunningProcesses", handle)
    if running is None:
        yield DoctorCheck(f"{name} processes", SKIP, "NVML does not report its processes")
        return
    foreign = [_name_of(process.pid) for process in running if process.pid != os.getpid()]
    if foreign:
        found = f"other processes on it ({len(foreign)}): {', '.join(sorted(set(foreign))[:5])}"
        yield DoctorCheck(f"{name} processes", WARN, found, "end them, or use another GPU: DEVICES=[…]")
    else:
        yield DoctorCheck(f"{name} processes", OK, "no other process on it")


def _ask(devices: Devices, call: str, handle: Any) -> Any:
    try:
        return devices.call(getattr(devices.nvml, call), handle)
    except Unavailable:
        return None


def _name_of(pid: int) -> str:
    """The name of a process, without its arguments, which may be confidential."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "in another pid namespace"
