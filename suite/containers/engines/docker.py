"""Docker's argv. docker_engine.py reads the attestation and the exit of a container through the API."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from suite.containers.engines.container import (
    RUN_LABEL,
    STACK_BYTES,
    TMPFS,
    TMPFS_BYTES,
    ContainerInputs,
    Limits,
    Mount,
    client_environment,
)
from suite.containers.engines.native import WorkerCommand


@dataclass(frozen=True, slots=True)
class Docker:
    """``docker run``. ``gpu_by``: ``cdi`` or ``gpus``, how this engine hands out GPUs (see gpu.py)."""

    name: ClassVar[str] = "docker"
    gpu_by: str | None = None
    rootless: bool = False
    not_enforced: Mapping[str, str] = field(default_factory=dict)

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command.

        No ``--rm``: the harness reads from the ended container whether it ran out of memory, and removes it
        then. ``--init``: a first process has no default signal handling, so that an abort of the framework
        would appear as another signal; the attestation finds the pid of the worker itself.
        """
        argv = ["docker", *run_flags(inputs), "--ipc", "private"]
        # Pinned memory needs it. A user may not raise it, nor may a daemon that is itself confined.
        if inputs.devices and not self.rootless:
            argv += ["--ulimit", "memlock=-1"]
        argv += ["--user", f"{inputs.user[0]}:{inputs.user[1]}", *self._gpus(inputs.devices)]
        argv += environment_flags(self._environment(inputs))
        argv += ["--entrypoint", inputs.python, inputs.image, *inputs.arguments]
        return WorkerCommand(tuple(argv), client_environment(), inputs.directory)

    def _gpus(self, devices: tuple[str, ...]) -> list[str]:
        if not devices:
            return []
        if self.gpu_by == "gpus":
            return ["--gpus", f'"device={",".join(devices)}"']  # the client reads CSV: quotes keep commas
        return cdi_flags(devices)

    def _environment(self, inputs: ContainerInputs) -> Mapping[str, str]:
        if inputs.devices and self.gpu_by == "gpus":
            return inputs.environment  # docker sets the variable itself
        # Where NVIDIA's runtime is the default, an image that asks for all GPUs would get them.
        return {"NVIDIA_VISIBLE_DEVICES": "void", **inputs.environment}


def run_flags(inputs: ContainerInputs) -> list[str]:
    """The arguments that docker and podman share, from ``run`` on. Never privileged, never a terminal."""
    argv = ["run", "--name", inputs.name, "--interactive", "--init", "--pull", "never"]
    argv += ["--log-driver", "none"]  # stdout is the protocol: the engine must not write it to disk as well
    argv += ["--network", "host" if inputs.host_network else "none", "--read-only"]
    argv += [flag for path in inputs.infiniband for flag in ("--device", path)]
    # exec: compilers of kernels load what they have just built
    argv += ["--tmpfs", f"{TMPFS}:rw,exec,nosuid,nodev,size={TMPFS_BYTES},mode=1777"]
    for mount in inputs.mounts:
        argv += ["--mount", mount_option(mount)]
    argv += ["--workdir", inputs.scratch, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    argv += ["--ulimit", f"stack={STACK_BYTES}", *limit_flags(inputs.limits)]
    if inputs.limits.shm_bytes is not None:
        argv += ["--shm-size", str(inputs.limits.shm_bytes)]
    for name, value in {RUN_LABEL: inputs.name, **inputs.labels}.items():
        argv += ["--label", f"{name}={value}"]
    return argv


def limit_flags(limits: Limits) -> list[str]:
    """The arguments for limits on processors and memory, equal for docker, podman and apptainer."""
    argv = []
    if limits.cpus is not None:
        argv += ["--cpus", limits.cpus]
    if limits.cpuset is not None:
        argv += ["--cpuset-cpus", limits.cpuset]
    if limits.memory_bytes is not None:  # no additional swap: it would turn a lack of memory into a slow run
        argv += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
    return argv


def mount_option(mount: Mount) -> str:
    """The value of ``--mount``: one CSV record, so that a comma in a path stays part of it."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if not mount.writable:
        fields.append("readonly")
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def environment_flags(environment: Mapping[str, str]) -> list[str]:
    """``--env`` for each variable, in the order of their names."""
    return [flag for name in sorted(environment) for flag in ("--env", f"{name}={environment[name]}")]


def cdi_flags(devices: Iterable[str]) -> list[str]:
    """``--device`` for each GPU, named as NVIDIA's CDI specification names it."""
    return [flag for device in devices for flag in ("--device", f"nvidia.com/gpu={device}")]
