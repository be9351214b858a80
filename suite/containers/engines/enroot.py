"""Enroot's argv: a squashfs file, no daemon, no root (enroot 3.1 or newer, with squashfuse)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from suite.containers.engines.container import (
    TMPFS,
    TMPFS_BYTES,
    ContainerInputs,
    client_environment,
    require_no_separator,
)
from suite.containers.engines.native import WorkerCommand

ENTRYPOINT = Path(__file__).with_name("enroot_rc.sh")
NO_LIMITS = "it has no option for it"
NO_NAMESPACE = "it creates no namespace for it"


@dataclass(frozen=True, slots=True)
class Enroot:
    """``enroot start`` of the file itself, not of an unpacked copy: its hash is the hash of what runs.

    The root file system is read-only by default. The user inside is the one who starts it.
    """

    name: ClassVar[str] = "enroot"
    not_enforced: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("cpus", "cpuset", "memory_bytes", "shm_bytes"), NO_LIMITS),
        **dict.fromkeys(("network", "ipc"), NO_NAMESPACE),
    }

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command. Mounts are fstab entries with colons instead of blanks."""
        argv = ["enroot", "start", "--rc", str(ENTRYPOINT)]
        argv += ["--mount", f"tmpfs:{TMPFS}:tmpfs:x-create=dir,size={TMPFS_BYTES},mode=1777"]
        for mount in (require_no_separator(": \t\\$", mount, self.name) for mount in inputs.mounts):
            mode = "rw" if mount.writable else "ro"
            argv += ["--mount", f"{mount.source}:{mount.target}:none:x-create=auto,bind,{mode}"]
        environment = {**gpu_variables(inputs.devices), **inputs.environment}
        for name in sorted(environment):
            argv += ["--env", f"{name}={environment[name]}"]
        argv += ["--", inputs.image, inputs.python, *inputs.arguments]
        client = client_environment("ENROOT_CONFIG_PATH", "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH")
        settled = dict.fromkeys(("ENROOT_ROOTFS_WRITABLE", "ENROOT_REMAP_ROOT", "ENROOT_MOUNT_HOME"), "no")
        return WorkerCommand(tuple(argv), {**client, **settled}, inputs.directory)


def gpu_variables(devices: tuple[str, ...]) -> dict[str, str]:
    """The variables of enroot's hook for NVIDIA GPUs; without devices they hide every GPU from the image."""
    if not devices:
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(devices), "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
