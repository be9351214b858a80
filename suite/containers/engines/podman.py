"""Podman's argv: docker's, with a user namespace and GPUs by CDI (podman 4.1 or newer)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from suite.containers.engines.container import ContainerInputs, client_environment
from suite.containers.engines.docker import cdi_flags, environment_flags, run_flags
from suite.containers.engines.native import WorkerCommand


@dataclass(frozen=True, slots=True)
class Podman:
    """``podman run``."""

    name: ClassVar[str] = "podman"
    rootless: bool = True
    not_enforced: Mapping[str, str] = field(default_factory=dict)

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command; no ``--rm``, as with docker."""
        argv = ["podman", *run_flags(inputs), "--ipc", "private"]
        argv += ["--read-only-tmpfs=false"]  # the default makes /run and /var/tmp writable as well
        argv += ["--security-opt", "label=disable"]  # SELinux denies mounts that are not relabelled
        if self.rootless:  # the container's user is the user of this process, who may write to scratch
            argv += ["--userns", "keep-id"]
        elif inputs.devices:
            argv += ["--ulimit", "memlock=-1:-1"]
        argv += ["--user", f"{inputs.user[0]}:{inputs.user[1]}", *cdi_flags(inputs.devices)]
        argv += environment_flags({"NVIDIA_VISIBLE_DEVICES": "void", **inputs.environment})
        argv += ["--entrypoint", inputs.python, inputs.image, *inputs.arguments]
        return WorkerCommand(tuple(argv), client_environment(), inputs.directory)
