"""The inputs of every container runtime; each runtime turns them into an argv list.

A runtime is a small class with ``name``, ``not_enforced`` and ``command(inputs)``. All runtimes confine the
worker alike as far as they can: network off (on several nodes the host's), root file system read-only, data
read-only, one writable mount, a user who is not root, never privileged, never a terminal. ``not_enforced``
lists what a runtime cannot confine or limit, so that the plan refuses a limit which nothing would enforce.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from suite.containers.engines.native import WorkerCommand
from suite.log.limits import bytes_of, cpus_of, cpuset_of

CODE, SITE, DATA, SCRATCH = "/opt/suite/code", "/opt/suite/site", "/data", "/scratch"  # inside
TMPFS = "/tmp"  # noqa: S108 - inside the container, in memory
TMPFS_BYTES = 1 << 30
STACK_BYTES = 67_108_864  # NVIDIA's advice for its images, as is unlimited locked memory with GPUs
RUN_LABEL = "suite.worker"  # on every container of the suite, so that leftovers are found again

# Variables that locate the engine; none of them changes what runs. HOME holds the engines' settings.
_CLIENT = (
    *("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
)
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/_.-]*")


class CannotRun(ValueError):
    """The inputs cannot be put into a command; the message names what was expected and found."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may use: processors' time (``2``, ``1.5``), processors (``0-3``), bytes. None: no limit.

    ``shm_bytes`` is the size of /dev/shm; None leaves it to the engine's default.
    """

    cpus: str | None = None
    cpuset: str | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None

    @classmethod
    def parse(
        cls,
        cpus: object = None,
        cpuset: object = None,
        memory: object = None,
        shm_size: object = None,
    ) -> Limits:
        """Limits from values of the configuration, such as ``1.5``, ``[0, 1]`` or ``0-1``, ``8g``, ``16g``.

        The result is normalised, so that it compares equal to the limits that are read back from the kernel.
        Raises CannotRun for a value that is no limit.
        """
        return cls(
            None if cpus is None else _cpus(cpus),
            None if cpuset is None else _cpuset(cpuset),
            None if memory is None else parse_bytes("memory", memory),
            None if shm_size is None else parse_bytes("shm_size", shm_size),
        )

    def names(self) -> tuple[str, ...]:
        """Names of the limits that are set."""
        names = ("cpus", "cpuset", "memory_bytes", "shm_bytes")
        return tuple(name for name in names if getattr(self, name) is not None)


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine seen at ``target`` inside; read-only unless ``writable``."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInputs:
    """Everything a containerised worker's command depends on.

    ``image``: an id or reference with digest for docker and podman, the path of the file for apptainer,
    enroot, pyxis. ``devices``: GPUs by UUID or ordinal. ``user``: numeric user and group. ``directory``:
    where the client is started. ``host_network``: for several nodes, else no network. Raises CannotRun for
    inputs that would weaken the confinement.
    """

    image: str
    name: str
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    user: tuple[int, int]
    directory: Path
    devices: tuple[str, ...] = ()
    limits: Limits = Limits()
    labels: Mapping[str, str] = field(default_factory=dict)
    python: str = "python3"
    module: str = "suite.worker"
    host_network: bool = False
    infiniband: tuple[str, ...] = ()  # devices below /dev/infiniband

    def __post_init__(self) -> None:
        writable = [mount.target for mount in self.mounts if mount.writable]
        if len(writable) != 1:
            found = ", ".join(writable) or "none"
            raise CannotRun(f"mounts: expected exactly one writable mount, the scratch, found {found}")
        if self.user[0] <= 0 or self.user[1] < 0:
            raise CannotRun(f"user: expected a user who is not root, found {self.user[0]}")
        for mount in self.mounts:
            if not mount.source.is_absolute() or not mount.target.startswith("/"):
                raise CannotRun(f"mounts: expected absolute paths, found {mount.source} at {mount.target}")
        _all_match("name", _NAME, (self.name,))
        _all_match("environment", _VARIABLE, self.environment)
        _all_match("devices", _DEVICE, self.devices)
        if not self.image or self.image.startswith("-"):
            raise CannotRun(f"image: expected a reference or a file, found {self.image!r}")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the Python interpreter."""
        return ("-s", "-m", self.module)

    @property
    def scratch(self) -> str:
        """The one writable path inside: the worker's working directory."""
        return next(mount.target for mount in self.mounts if mount.writable)


class Runtime(Protocol):
    """A container runtime: it builds the command that starts a worker."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def not_enforced(self) -> Mapping[str, str]:
        """Limits (by their field) and confinements that it does not enforce, each with the reason."""

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The client's command, no shell anywhere. Raises CannotRun."""


def unenforced_limits(runtime: Runtime, limits: Limits) -> str | None:
    """Why ``runtime`` must refuse ``limits``, in one sentence with the fix; None where it enforces all."""
    reasons = runtime.not_enforced
    refused = [f"{name} ({reasons[name]})" for name in limits.names() if name in reasons]
    if not refused:
        return None
    return f"{runtime.name} does not enforce {' and '.join(refused)}: remove the limit, or run docker as root"


def infiniband_devices() -> tuple[str, ...]:
    """The machine's InfiniBand devices, for ranks of several nodes."""
    return tuple(sorted(str(path) for path in Path("/dev/infiniband").glob("*")))


def client_environment(*names: str) -> dict[str, str]:
    """The variables by which a client finds its engine, and those in ``names``."""
    return {name: os.environ[name] for name in (*_CLIENT, *names) if name in os.environ}


def require_no_separator(characters: str, mount: Mount, runtime: str) -> Mount:
    """``mount`` itself. Raises CannotRun where its paths contain one of the separators ``characters``."""
    for character in characters:
        if character in str(mount.source) or character in mount.target:
            raise CannotRun(
                f"{runtime} takes {character!r} for a separator, and the path {mount.source} contains it: "
                "move the folder to a path without it"
            )
    return mount


def parse_bytes(name: str, value: object) -> int:
    """Bytes from an integer or a text such as ``8g`` or ``1.5GiB`` (units of 1024). Raises CannotRun."""
    if (count := bytes_of(value)) is None:
        raise CannotRun(f"{name}: expected a size such as 8g or 512m, found {value!r}")
    return count


def _cpus(value: object) -> str:
    if (count := cpus_of(value)) is None:
        raise CannotRun(f"cpus: expected processors' time such as 2 or 1.5, at least 0.01, found {value!r}")
    return count


def _cpuset(value: object) -> str:
    if (processors := cpuset_of(value)) is None:
        raise CannotRun(f"cpuset: expected processors such as [0,1] or 0-3, found {value!r}")
    return processors


def _all_match(field_name: str, pattern: re.Pattern[str], values: Mapping[str, str] | Sequence[str]) -> None:
    for value in values:
        if not pattern.fullmatch(value):
            raise CannotRun(f"{field_name}: expected {pattern.pattern}, found {value!r}")
