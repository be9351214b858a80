"""Checks before an image is pulled: whether it can run on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.containers.images.lock import Base

# NVIDIA's framework images unpack to 40 GB; during a pull the engine also keeps their compressed layers.
NGC_BUDGET_BYTES = 60 * 10**9
_NGC = "nvcr.io/"
_LIST = "`python -m suite image list` shows the requirements of each image"
# The compatibility package in an image supports data-centre GPUs only; the other GPUs have these names.
_NOT_DATA_CENTRE = ("geforce", "titan", "rtx", "quadro")


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU: its name, and its compute capability ("9.0"; None where it could not be read)."""

    name: str
    capability: str | None


def refusal(
    base: Base, *, platform: str, gpus: Sequence[GpuFacts], driver: str | None, free_bytes: int | None
) -> str | None:
    """One sentence why ``base`` cannot run on this machine, with the fix; None where no check fails.

    ``platform`` is "linux/amd64" or "linux/arm64", ``driver`` the host's NVIDIA driver ("580.82.07"),
    ``free_bytes`` the free space of the engine's image store. Unknown values pass.
    """
    return (
        _of_platform(base, platform)
        or _of_architecture(base, gpus)
        or _of_driver(base, gpus, driver)
        or _of_disk(base, platform, free_bytes)
    )


def docker_free_bytes() -> int | None:
    """Bytes free in the image store of this machine's docker engine; None where unknown."""
    if not os.environ.get("DOCKER_HOST", "unix:").startswith("unix:"):
        return None  # the engine may be on another machine
    command = ["docker", "info", "--format", "{{.DockerRootDir}}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        folder = Path(answer.stdout.strip())
        return shutil.disk_usage(folder).free if answer.returncode == 0 and folder.is_absolute() else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _of_platform(base: Base, platform: str) -> str | None:
    # Only a list that was read from the image registry is complete.
    if base.resolved_at is None or platform in base.platforms:
        return None
    return (
        f"{base.tagged} exists for {', '.join(base.platforms)}, this machine is {platform}: "
        f"take another machine or another framework; {_LIST}"
    )


def _of_architecture(base: Base, gpus: Sequence[GpuFacts]) -> str | None:
    if not base.architectures:
        return None
    known = sorted(map(_numbers, base.architectures))
    for gpu in gpus:
        if gpu.capability is None:
            continue
        capability = _numbers(gpu.capability)
        # Code for one compute capability runs on later ones of the same major number, and on no other.
        if any(capability[0] == one[0] and capability >= one for one in known):
            continue
        if capability > known[-1]:
            # The current image is the suite's newest image of its framework.
            other = "another framework" if base.current else "a newer image"
            fix = f"take {other} or a GPU of at most {base.architectures[-1]}"
        else:
            fix = "take an image made for it"
        return (
            f"{base.tagged} has code for compute capability {', '.join(base.architectures)}, "
            f"{gpu.name} has {gpu.capability}: {fix}; {_LIST}"
        )
    return None


def _of_driver(base: Base, gpus: Sequence[GpuFacts], driver: str | None) -> str | None:
    if not gpus or driver is None or base.minimum_driver is None:
        return None
    floor: str | None = base.minimum_driver
    if not any(name in gpu.name.lower() for gpu in gpus for name in _NOT_DATA_CENTRE):
        # With its compatibility package the image may run on an older driver; that minimum may be unknown.
        floor = base.compat_driver
    if floor is None or _numbers(driver) >= _numbers(floor):
        return None
    return (
        f"{base.tagged} needs NVIDIA driver {floor} or newer on {gpus[0].name}, found {driver}: "
        f"update the driver or take an older image; {_LIST}"
    )


def _of_disk(base: Base, platform: str, free_bytes: int | None) -> str | None:
    needed = disk_budget(base, platform)
    if needed is None or free_bytes is None or free_bytes >= needed:
        return None
    return (
        f"{base.tagged} needs {needed / 1e9:.0f} GB of disk where the engine keeps its images, "
        f"{free_bytes / 1e9:.1f} GB are free: free some space, or move the engine's storage to a larger disk"
    )


def disk_budget(base: Base, platform: str) -> int | None:
    """Bytes that a pull takes at most: compressed and unpacked layers; None where unknown."""
    compressed = base.platform(platform).compressed_bytes
    if base.unpacked_bytes is not None and compressed is not None:
        return base.unpacked_bytes + compressed
    return NGC_BUDGET_BYTES if base.repository.startswith(_NGC) else base.unpacked_bytes


def _numbers(version: str) -> tuple[int, ...]:
    """The parts of a version as numbers, so that 10.0 is above 9.0."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
