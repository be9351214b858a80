"""The argv under Slurm's plugin pyxis: srun starts one task in a squashfs file, by way of enroot.

Source of the flags: NVIDIA/pyxis, args.c. pyxis is compiled against one version of Slurm, so golden tests pin
what is asked of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from suite.containers.engines.container import (
    TMPFS,
    TMPFS_BYTES,
    CannotRun,
    ContainerInputs,
    client_environment,
    without,
)
from suite.containers.engines.enroot import NO_NAMESPACE, gpu_variables
from suite.containers.engines.native import WorkerCommand

ASK_SLURM = "under Slurm limits belong to the allocation: set launcher.cpus and launcher.memory"


def available() -> bool:
    """Whether the ``srun`` of this machine has the plugin: it then knows the option."""
    try:
        done = subprocess.run(["srun", "--help"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--container-image" in done.stdout


def _cannot() -> dict[str, str]:
    limits = dict.fromkeys(("cpus", "cpuset", "memory_bytes", "shm_bytes"), ASK_SLURM)
    return limits | dict.fromkeys(("network", "ipc"), NO_NAMESPACE)


@dataclass(frozen=True, slots=True)
class Pyxis:
    """``srun --container-image``, inside an allocation of one node; no ``--pty``."""

    cannot: Mapping[str, str] = field(default_factory=_cannot)

    @property
    def name(self) -> str:
        """The word of the configuration."""
        return "pyxis"

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command.

        srun hands its own environment to the task, and ``--container-env`` names what wins over the image's:
        so the worker's variables are in the client's environment, and must not be any that srun itself reads.
        """
        environment = {**gpu_variables(inputs.devices), **inputs.environment}
        for name in environment:
            if name == "PATH" or name.startswith(("SLURM", "PYXIS", "LD_")):
                raise CannotRun(f"pyxis: the variable {name} would change srun itself: do not set it")
        mounts = [f"tmpfs:{TMPFS}:size={TMPFS_BYTES}+mode=1777"]
        for mount in inputs.mounts:
            mode = "rw" if without(":,+ \t\\$", mount, self.name).writable else "ro"
            mounts += [f"{mount.source}:{mount.target}:{mode}"]
        argv = ["srun", "--nodes=1", "--ntasks=1", "--kill-on-bad-exit=1", "--unbuffered"]
        argv += [f"--job-name={inputs.name}", f"--container-image={_file(inputs.image)}"]
        argv += [f"--container-mounts={','.join(mounts)}", f"--container-env={','.join(sorted(environment))}"]
        argv += [f"--container-workdir={inputs.scratch}", "--container-readonly", "--no-container-mount-home"]
        argv += ["--no-container-remap-root", "--no-container-entrypoint", inputs.python, *inputs.words]
        slurm = [name for name in os.environ if name.startswith("SLURM_")]
        return WorkerCommand(tuple(argv), {**client_environment(*slurm), **environment}, inputs.directory)


def _file(image: str) -> str:
    """``image`` itself: a file by its absolute path. Raises CannotRun for a reference to a registry.

    A node would import it anew at each start, by tag where enroot takes no digest, and nothing could attest
    which one it was.
    """
    if not image.startswith("/"):
        raise CannotRun(
            f"pyxis: expected the absolute path of a squashfs file, found {image}: import it first"
        )
    return image
