"""The cores and GPUs of this machine, detected without importing a framework."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU as NVML sees it."""

    uuid: str
    name: str
    memory_bytes: int
    capability: str = ""  # such as 9.0; empty where NVML does not report it


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores that this process may use, and GPUs after CUDA_VISIBLE_DEVICES."""

    cores: int
    gpus: tuple[Gpu, ...]
    visible: str | None  # CUDA_VISIBLE_DEVICES as found
    driver: str | None = None  # of the GPUs
    problem: str | None = None  # that kept NVML from listing GPUs, or CUDA from seeing them


def detect_machine() -> Machine:
    """The cores and GPUs of this machine; without a GPU, a driver or NVML the list of GPUs is empty."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus, driver, problem = _gpus()
    shown = _visible(gpus, visible)
    if len(set(shown)) < len(shown):
        shown, problem = (), f"CUDA_VISIBLE_DEVICES: expected each GPU once, found {visible!r}"
    return Machine(len(os.sched_getaffinity(0)), shown, visible, driver, problem)


def _gpus() -> tuple[tuple[Gpu, ...], str | None, str | None]:
    """The GPUs, their driver, and the problem that keeps NVML from listing them if there is a driver."""
    try:
        import pynvml
    except ImportError:  # nvidia-ml-py is not installed
        return (), None, None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:  # no driver
        return (), None, None
    except pynvml.NVMLError as problem:
        return (), None, f"NVML: {problem}"
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
        found.append(Gpu(uuid, name, int(memory), f"{major}.{minor}"))
    return tuple(found), str(pynvml.nvmlSystemGetDriverVersion()), None


def select_gpus(machine: Machine, names: tuple[str, ...]) -> Machine | None:
    """``machine`` with the GPUs of ``names`` only, in their order; None if one is missing or comes twice.

    A name is an ordinal among the visible GPUs, or the beginning of a UUID. Without names all GPUs stay.
    """
    chosen: list[int] = []
    for name in names:
        fits = [at for at, gpu in enumerate(machine.gpus) if name == str(at) or gpu.uuid.startswith(name)]
        if len(fits) != 1:
            return None
        chosen += fits
    if len(set(chosen)) < len(chosen):  # one by its ordinal and by its UUID
        return None
    return replace(machine, gpus=tuple(machine.gpus[at] for at in chosen)) if names else machine


def _visible(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    if visible is None:
        return gpus
    chosen = []
    for entry in (part.strip() for part in visible.split(",") if part.strip()):
        for index, gpu in enumerate(gpus):
            if entry == str(index) or gpu.uuid.startswith(entry):
                chosen.append(gpu)
                break
        else:
            break  # as in CUDA: all devices after an unknown entry are invisible
    return tuple(chosen)
