"""Start, attest and end the workers of a run, as plain processes or in containers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from suite.containers.engines.attestation import Attestation, ContainerExit, Engine, EngineProblem
from suite.containers.engines.container import (
    CODE,
    DATA,
    RUN_LABEL,
    SCRATCH,
    SITE,
    ContainerInputs,
    Limits,
    Mount,
    infiniband_devices,
)
from suite.containers.engines.native import NativeInputs, WorkerCommand, native_command, worker_environment
from suite.log.processors import expand_list
from suite.telemetry import cgroup
from suite.telemetry.reading import Unavailable

PAIR = "/opt/suite/custom/pair.py"  # inside
_NOBODY = 65534  # user and group of the worker where the harness is root


@dataclass(frozen=True, slots=True)
class WorkerPaths:
    """Paths as the worker sees them; empty where there is none."""

    data: str
    scratch: str
    pair: str


class Workers(Protocol):
    """The workers of one run, one for each repeat."""

    def paths(self, scratch: Path, data: Path | None) -> WorkerPaths:
        """The paths of data, scratch and custom pair inside the worker."""

    def command(self, repeat: int, scratch: Path, data: Path | None) -> WorkerCommand:
        """The command that starts the worker of ``repeat``."""

    def attest(self, repeat: int, process: int) -> Attestation:
        """The facts of the running worker and its pid; ``process`` is the pid of the started command."""

    def ended(self, repeat: int) -> ContainerExit | None:
        """How the worker ended, where more is known than its command's exit status."""

    def remove(self, repeat: int) -> None:
        """End what is left of the worker of ``repeat``."""


@dataclass
class NativeWorkers:
    """Plain processes of this machine."""

    python: Path
    threads: int
    wait_policy: str
    visible_devices: str | None
    pair: Path | None = None
    affinity: str | None = None  # processors such as 0-1 that the worker may run on
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment: the plan's
    packages: Path | None = None  # a folder of packages beside those of the interpreter
    _group: cgroup.Cgroup | None = None
    _kills: int = 0

    def paths(self, scratch: Path, data: Path | None) -> WorkerPaths:
        """See :class:`Workers`."""
        return WorkerPaths(str(data or ""), str(scratch), str(self.pair or ""))

    def command(self, repeat: int, scratch: Path, data: Path | None) -> WorkerCommand:
        """See :class:`Workers`."""
        del repeat, data
        cache = scratch.parent / "cache"
        cache.mkdir(exist_ok=True)
        processors = None if self.affinity is None else frozenset(expand_list(self.affinity))
        return native_command(
            NativeInputs(
                self.python,
                scratch,
                cache,
                self.threads,
                self.wait_policy,
                self.visible_devices,
                processors,
                self.variables,
                self.packages,
            )
        )

    def attest(self, repeat: int, process: int) -> Attestation:
        """See :class:`Workers`."""
        del repeat
        try:
            self._group = cgroup.locate(process)
            self._kills = cgroup.oom_kills(self._group)
        except (Unavailable, OSError):
            self._group = None
        return Attestation(None, {"container": "runtime native uses no container"}, process)

    def ended(self, repeat: int) -> ContainerExit | None:
        """Whether the kernel killed a process of the worker's control group for lack of memory."""
        del repeat
        try:
            if self._group is not None and cgroup.oom_kills(self._group) > self._kills:
                return ContainerExit(None, oom_killed=True)
        except (Unavailable, OSError):
            pass
        return None

    def remove(self, repeat: int) -> None:
        """See :class:`Workers`: the harness has ended the process group already."""


@dataclass(frozen=True)
class ContainerWorkers:
    """Containers of one image, started by digest, each removed at the end of its repeat."""

    engine: Engine
    image: str  # the id or file that the engine starts
    run_id: str
    threads: int
    wait_policy: str
    devices: tuple[str, ...]
    limits: Limits
    python: str = "python3"
    code: Path | None = None  # the worker's code, mounted read-only where the image does not contain it
    pair: Path | None = None
    user: tuple[int, int] = (_NOBODY, _NOBODY)
    host_network: bool = False  # for several nodes
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment: the plan's

    def name(self, repeat: int) -> str:
        """The container's name."""
        return f"suite-{self.run_id.rpartition('-')[2]}-{repeat}"

    def paths(self, scratch: Path, data: Path | None) -> WorkerPaths:
        """See :class:`Workers`."""
        return WorkerPaths(
            DATA if data is not None else "",
            f"{SCRATCH}/{scratch.name}",
            PAIR if self.pair is not None else "",
        )

    def command(self, repeat: int, scratch: Path, data: Path | None) -> WorkerCommand:
        """See :class:`Workers`. The one writable mount is the run's scratch, which holds the caches too."""
        cache = scratch.parent / "cache"
        cache.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            # What workers added to the cache is theirs, and another one may be adding to it right now.
            copied = () if cache.stat().st_uid == self.user[0] else (*cache.rglob("*"), cache)
            for path in (scratch.parent, scratch, *copied):
                os.chown(path, *self.user, follow_symlinks=False)
        inputs = ContainerInputs(
            image=self.image,
            name=self.name(repeat),
            environment=self._environment(f"{SCRATCH}/{scratch.name}", f"{SCRATCH}/{cache.name}"),
            mounts=tuple(self._mounts(scratch.parent, data)),
            user=self.user,
            devices=self.devices,
            limits=self.limits,
            labels={RUN_LABEL: self.run_id},
            python=self.python,
            directory=scratch,
            host_network=self.host_network,
            infiniband=infiniband_devices() if self.host_network and self.devices else (),
        )
        return self.engine.command(inputs)

    def attest(self, repeat: int, process: int) -> Attestation:
        """See :class:`Workers`."""
        return self.engine.attest(self.name(repeat), process)

    def ended(self, repeat: int) -> ContainerExit | None:
        """See :class:`Workers`; None also where the engine no longer answers."""
        try:
            return self.engine.ended(self.name(repeat))
        except EngineProblem:
            return None

    def remove(self, repeat: int) -> None:
        """See :class:`Workers`. The next run sweeps what the engine cannot remove now."""
        with contextlib.suppress(EngineProblem):
            self.engine.remove(self.name(repeat))

    def _environment(self, scratch: str, cache: str) -> dict[str, str]:
        environment = worker_environment(scratch, cache, f"{CODE}:{SITE}", self.threads, self.wait_policy)
        environment |= self.variables
        if not self.devices:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return environment

    def _mounts(self, scratch: Path, data: Path | None) -> list[Mount]:
        mounts = [Mount(scratch, SCRATCH, writable=True)]
        if data is not None:
            mounts += data_mounts(data)
        if self.code is not None:
            mounts.append(Mount(self.code / "suite", f"{CODE}/suite"))
        if self.pair is not None:
            mounts.append(Mount(self.pair, PAIR))
        return mounts


def data_mounts(data: Path) -> list[Mount]:
    """The dataset, and the folders of the site that it links to, at the same path inside."""
    links = sorted(path for path in data.iterdir() if path.is_symlink())
    return [Mount(data, DATA), *(Mount(link.resolve(), str(link.readlink())) for link in links)]


def worker_user() -> tuple[int, int]:
    """User and group of workers in containers: the caller's, so that scratch is writable, but never root."""
    return (_NOBODY, _NOBODY) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
