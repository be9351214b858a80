"""Precisions of a framework on a device, and loaders of a workload. Standard library only."""

from __future__ import annotations

from suite.contract import FORWARD_BACKWARD, Key
from suite.contract.traits import framework_names, traits_of
from suite.contract.workloads import specification

# The compute capability from which an NVIDIA GPU has the arithmetic. An older GPU accepts the same calls but
# computes TF32 as fp32, and bf16 through fp32: the result would have the wrong precision in its key.
_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3)}


class UnsupportedJob(Exception):
    """The device, the framework or the workload cannot compute what the key says."""


def unsupported(key: Key, device: str, capability: str = "") -> str | None:
    """Why ``key`` cannot run on ``device`` (``cpu``, ``cuda:0``), or None where it can.

    ``capability`` is the compute capability of the GPU, such as ``9.0``; empty where unknown. ``fp64`` is for
    equivalence tests only: no specification offers it.
    """
    kind = device.partition(":")[0]
    if key.framework not in framework_names():
        return f"framework: expected one of {', '.join(framework_names())}, found {key.framework}"
    kinds = traits_of(key.framework).precisions
    if kind not in kinds:
        return f"device: expected one of {', '.join(kinds)}, found {device}"
    if key.precision not in kinds[kind]:
        able = ", ".join(name for name in kinds[kind] if name != "fp64")
        return f"precision {key.precision} cannot run in {key.framework} on {kind}: choose one of {able}"
    scenarios = specification(key.workload).SCENARIOS
    if key.scenario not in scenarios:
        return f"scenario {key.scenario} cannot run in {key.workload}: choose one of {', '.join(scenarios)}"
    if key.scenario == FORWARD_BACKWARD and key.precision == "fp16":
        return (
            f"scenario {key.scenario}: the scale of fp16's loss follows the updates; choose another precision"
        )
    least = _CAPABILITY.get(key.precision, (0, 0))
    if capability and tuple(int(part) for part in capability.split(".")) < least:
        wanted = ".".join(map(str, least))
        return (
            f"precision {key.precision}: expected a GPU of compute capability {wanted} or more, found "
            f"{capability}, which would compute in another precision; choose precision=fp32"
        )
    return None


def loaders(key: Key) -> tuple[str, ...]:
    """The loaders that can read the data of ``key``; only image files have more than one."""
    return ("native",) if key.data == "synthetic" else tuple(specification(key.workload).LOADERS)


def reads_images(key: Key) -> bool:
    """Whether ``key`` reads image files, for which there is a choice of loaders."""
    return len(loaders(key)) > 1


def decodes_on_gpu(key: Key, device: str, loader: str) -> bool:
    """Whether ``device`` (``cpu``, ``cuda:0``) is a GPU on which ``loader`` decodes the images of ``key``."""
    able = loader == "dali" or (loader == "native" and traits_of(key.framework).gpu_decoder != "")
    return able and device.startswith("cuda") and reads_images(key)
