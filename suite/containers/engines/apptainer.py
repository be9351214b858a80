"""Apptainer's argv: a SIF file, no daemon, no root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from suite.containers.engines.container import ContainerInputs, client_environment, require_no_separator
from suite.containers.engines.docker import limit_flags
from suite.containers.engines.native import WorkerCommand

NO_SIZE_OF_SHM = "its /dev/shm has the size that the administrator configured"


@dataclass(frozen=True, slots=True)
class Apptainer:
    """``apptainer exec`` (1.1 or newer). The user inside is the one who starts it.

    The default of ``not_enforced`` holds on every machine; cgroups v1 without root adds the limits to it (see
    file_engine.py). Its /tmp is small by default (``sessiondir max size``): TMPDIR must point to scratch.
    """

    name: ClassVar[str] = "apptainer"
    not_enforced: Mapping[str, str] = field(default_factory=lambda: {"shm_bytes": NO_SIZE_OF_SHM})

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command. A SIF file is always read-only."""
        argv = ["apptainer", "--quiet", "exec", "--containall", "--cleanenv", "--no-home", "--no-privs"]
        argv += ["--no-eval"]  # apptainer would expand the values of variables as shell text
        if not inputs.host_network:
            argv += ["--net", "--network", "none"]  # the one network that plain users may choose
        if inputs.devices:
            argv += ["--nv"]
        argv += limit_flags(inputs.limits)
        for mount in (require_no_separator(":,\\", mount, self.name) for mount in inputs.mounts):
            mode = "rw" if mount.writable else "ro"
            argv += ["--bind", f"{mount.source}:{mount.target}:{mode}"]
        argv += ["--pwd", inputs.scratch, inputs.image]
        environment = dict(inputs.environment)
        if inputs.devices:  # --nv shows all GPUs of the machine, so CUDA selects
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(inputs.devices)
        if home := environment.pop("HOME", None):  # apptainer sets this variable itself
            argv += ["env", f"HOME={home}"]
        argv += [inputs.python, *inputs.arguments]
        # Variables with this prefix reach the container unchanged; --env would split a value at its commas.
        inside = {f"APPTAINERENV_{name}": value for name, value in environment.items()}
        return WorkerCommand(tuple(argv), {**client_environment(), **inside}, inputs.directory)
