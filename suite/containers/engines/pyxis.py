"""The argv under Slurm's plugin pyxis: srun starts one task in a squashfs file, by way of enroot.

Source of the flags: NVIDIA/pyxis, args.c. pyxis is compiled against one version of Slurm, so golden tests pin
the flags that the suite uses.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from suite.containers.engines.container import (
    TMPFS,
    TMPFS_BYTES,
    CannotRun,
    ContainerInputs,
    client_environment,
    require_no_separator,
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


@dataclass(frozen=True, slots=True)
class Pyxis:
    """``srun --container-image``, inside an allocation, on this node; no ``--pty``."""

    name: ClassVar[str] = "pyxis"
    not_enforced: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("cpus", "cpuset", "memory_bytes", "shm_bytes"), ASK_SLURM),
        **dict.fromkeys(("network", "ipc"), NO_NAMESPACE),
    }

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command.

        srun hands its environment to the task, and ``--container-env`` names the variables that override the
        image's: so the client's environment holds the worker's variables, and none of them may be one that
        srun itself reads.
        """
        environment = {**gpu_variables(inputs.devices), **inputs.environment}
        for name in environment:
            if name == "PATH" or name.startswith(("SLURM", "PYXIS", "LD_")):
                raise CannotRun(f"pyxis: the variable {name} would change srun itself: remove it")
        mounts = [f"tmpfs:{TMPFS}:size={TMPFS_BYTES}+mode=1777"]
        for mount in inputs.mounts:
            mode = "rw" if require_no_separator(":,+ \t\\$", mount, self.name).writable else "ro"
            mounts += [f"{mount.source}:{mount.target}:{mode}"]
        argv = ["srun", "--nodes=1", "--ntasks=1", "--kill-on-bad-exit=1", "--unbuffered"]
        if inputs.host_network:  # one of several nodes: within the task of srun that this program is
            argv += ["--overlap", f"--nodelist={os.environ['SLURMD_NODENAME']}"]
        argv += [f"--job-name={inputs.name}", f"--container-image={_file(inputs.image)}"]
        argv += [f"--container-mounts={','.join(mounts)}", f"--container-env={','.join(sorted(environment))}"]
        argv += [f"--container-workdir={inputs.scratch}", "--container-readonly", "--no-container-mount-home"]
        argv += ["--no-container-remap-root", "--no-container-entrypoint", inputs.python, *inputs.arguments]
        slurm = [name for name in os.environ if name.startswith("SLURM_")]
        return WorkerCommand(tuple(argv), {**client_environment(*slurm), **environment}, inputs.directory)


def _file(image: str) -> str:
    """``image`` itself: the absolute path of a file. Raises CannotRun for a reference to an image registry.

    A node would import such a reference at each start, by tag where enroot takes no digest, and nothing could
    attest which image that was.
    """
    if not image.startswith("/"):
        raise CannotRun(
            f"pyxis: expected the absolute path of a squashfs file, found {image}: import it first"
        )
    return image
