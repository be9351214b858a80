"""What this machine offers, as far as a plan depends on it. No framework is imported to find out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU as NVML sees it."""

    uuid: str
    name: str
    memory_bytes: int
    capability: str = ""  # such as 9.0; empty where NVML does not tell


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores that this process may use, and GPUs after CUDA_VISIBLE_DEVICES."""

    cores: int
    gpus: tuple[Gpu, ...]
    visible: str | None  # CUDA_VISIBLE_DEVICES as found
    driver: str | None = None  # of the GPUs


def look() -> Machine:
    """Look at this machine; no GPU, no driver and no NVML all give an empty list."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus, driver = _gpus()
    return Machine(len(os.sched_getaffinity(0)), _visible(gpus, visible), visible, driver)


def _gpus() -> tuple[tuple[Gpu, ...], str | None]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - NVML missing or without a driver: there is no GPU to use
        return (), None
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
        found.append(Gpu(uuid, name, int(memory), f"{major}.{minor}"))
    return tuple(found), str(pynvml.nvmlSystemGetDriverVersion())


def choose(machine: Machine, words: tuple[str, ...]) -> Machine | None:
    """``machine`` with the GPUs of ``words`` only, in that order; None where it has not got one of them.

    A word is an ordinal among the GPUs that are visible, or the beginning of a UUID.
    """
    chosen = []
    for word in words:
        fits = [gpu for at, gpu in enumerate(machine.gpus) if word == str(at) or gpu.uuid.startswith(word)]
        if len(fits) != 1:
            return None
        chosen += fits
    return replace(machine, gpus=tuple(chosen)) if words else machine


def _visible(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    if visible is None:
        return gpus
    chosen = []
    for word in (part.strip() for part in visible.split(",") if part.strip()):
        for index, gpu in enumerate(gpus):
            if word == str(index) or gpu.uuid.startswith(word):
                chosen.append(gpu)
                break
        else:
            break  # as CUDA does: everything behind an unknown entry is invisible
    return tuple(chosen)
