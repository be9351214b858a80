"""Apptainer's argv: a SIF file, no daemon, no root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from suite.containers.engines.container import ContainerInputs, client_environment, without
from suite.containers.engines.native import WorkerCommand

NO_SIZE_OF_SHM = "its /dev/shm has the size that the administrator configured"


@dataclass(frozen=True, slots=True)
class Apptainer:
    """``apptainer exec`` (1.1 or newer). The user inside is the one who starts it.

    ``cannot`` of a plain object is what never works; cgroups v1 without root adds the limits to it (see
    file_engine.py). Its /tmp is small by default (``sessiondir max size``): TMPDIR must point to scratch.
    """

    cannot: Mapping[str, str] = field(default_factory=lambda: {"shm_bytes": NO_SIZE_OF_SHM})

    @property
    def name(self) -> str:
        """The word of the configuration."""
        return "apptainer"

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command. A SIF file is read-only by nature."""
        limits = inputs.limits
        argv = ["apptainer", "--quiet", "exec", "--containall", "--cleanenv", "--no-home", "--no-privs"]
        argv += ["--no-eval"]  # values of variables are texts, not shell to be expanded
        argv += ["--net", "--network", "none"]  # the one network that plain users may choose
        if inputs.devices:
            argv += ["--nv"]
        if limits.cpus is not None:
            argv += ["--cpus", limits.cpus]
        if limits.cpuset is not None:
            argv += ["--cpuset-cpus", limits.cpuset]
        if limits.memory_bytes is not None:
            argv += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
        for mount in (without(":,\\", mount, self.name) for mount in inputs.mounts):
            mode = "rw" if mount.writable else "ro"
            argv += ["--bind", f"{mount.source}:{mount.target}:{mode}"]
        argv += ["--pwd", inputs.scratch, inputs.image]
        environment = dict(inputs.environment)
        if inputs.devices:  # --nv shows all GPUs of the machine: the choice is CUDA's
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(inputs.devices)
        if home := environment.pop("HOME", None):  # the one variable that apptainer sets itself
            argv += ["env", f"HOME={home}"]
        argv += [inputs.python, *inputs.words]
        # Variables so named reach the container as they are; --env would split a value at its commas.
        inside = {f"APPTAINERENV_{name}": value for name, value in environment.items()}
        return WorkerCommand(tuple(argv), {**client_environment(), **inside}, inputs.directory)
