"""Podman's argv: docker's, with the user mapped by a namespace and GPUs by CDI (podman 4.1 or newer)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from suite.containers.engines.container import ContainerInputs, client_environment
from suite.containers.engines.docker import cdi_flags, environment_flags, run_flags
from suite.containers.engines.native import WorkerCommand


@dataclass(frozen=True, slots=True)
class Podman:
    """``podman run``."""

    rootless: bool = True
    cannot: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The word of the configuration."""
        return "podman"

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command; no ``--rm``, as with docker."""
        argv = ["podman", *run_flags(inputs), "--ipc", "private"]
        argv += ["--read-only-tmpfs=false"]  # else /run and /var/tmp are writable as well
        argv += ["--security-opt", "label=disable"]  # SELinux would deny the mounts without relabelling them
        if self.rootless:  # the user of the container is the user of this process: scratch can be written
            argv += ["--userns", "keep-id"]
        elif inputs.devices:
            argv += ["--ulimit", "memlock=-1:-1"]
        argv += ["--user", f"{inputs.user[0]}:{inputs.user[1]}", *cdi_flags(inputs.devices)]
        argv += environment_flags({"NVIDIA_VISIBLE_DEVICES": "void", **inputs.environment})
        argv += ["--entrypoint", inputs.python, inputs.image, *inputs.words]
        return WorkerCommand(tuple(argv), client_environment(), inputs.directory)
