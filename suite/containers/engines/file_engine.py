"""Apptainer and enroot have no daemon, so the attestation rests on the image file that was started.

Its ``worth`` is ``file`` where the file's import from a digest is recorded, else ``claimed``. The kernel
reports how the worker is confined and limited (see observe.py); the command is no evidence.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from suite.containers.engines.apptainer import Apptainer
from suite.containers.engines.attestation import (
    LIMITS,
    NO_LIMIT,
    Attestation,
    ContainerExit,
    EngineImage,
    EngineProblem,
    has_ended,
    limit_in_force,
)
from suite.containers.engines.container import ContainerInputs, Runtime
from suite.containers.engines.enroot import Enroot
from suite.containers.engines.file_image import SUFFIXES, file_digest, recorded_import
from suite.containers.engines.native import WorkerCommand
from suite.containers.engines.observe import confinement
from suite.telemetry.reading import Collector

PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_NO_CONFIG = "a file's hash is known, not the digest of the image's configuration"
_NO_LAYERS = "a file has no layers"
_NO_LABELS = "the labels of a file can only be read inside the container"
_POLL_S = 0.05


class FileEngine:
    """``apptainer`` or ``enroot`` on this machine. Raises EngineProblem, in one sentence, where it is not."""

    def __init__(self, tool: str) -> None:
        if shutil.which(tool) is None:
            raise EngineProblem(f"the program `{tool}` is not on PATH: install it")
        self.name = tool
        self.version = _version(tool)
        self._started: dict[str, ContainerInputs] = {}
        self._starter: Runtime | None = None
        self.gpu_by, self.gpu_reason = self._gpus()

    @property
    def rootless(self) -> bool:
        """Whether it runs without root."""
        return os.geteuid() != 0

    @property
    def runtime(self) -> Runtime:
        """The runtime that builds the commands, with the limits that nothing enforces on this machine."""
        if self._starter is not None:
            return self._starter
        if self.name == "enroot":
            return Enroot()
        plain = Apptainer()
        if not self.rootless or Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return plain
        why = "without root it needs control groups of version 2"
        return Apptainer({**plain.not_enforced, **dict.fromkeys(LIMITS, why)})

    def start_with(self, starter: Runtime) -> None:
        """Start the workers from the same file by ``starter``: pyxis, in an allocation of Slurm."""
        self._starter = starter

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command that starts a worker; :meth:`attest` looks its inputs up by name."""
        self._started[inputs.name] = inputs
        return self.runtime.command(inputs)

    def image(self, reference: str) -> EngineImage | None:
        """The file ``reference``; its id is its hash, and it has no layers."""
        path = Path(reference)
        if not path.is_file():
            return None
        record = recorded_import(path)
        digests = () if record is None else (record.reference,)
        digest = f"sha256:{file_digest(path)}"
        return EngineImage(digest, None, (), digests, _platform(), {}, path.stat().st_size)

    def attest(self, container: str, client_pid: int | None = None, wait_s: float = 30.0) -> Attestation:
        """The facts of the worker that ``command`` was built for; ``client_pid`` is the started process.

        Raises EngineProblem where no command of that name was built, or the client ended.
        """
        inputs = self._started.get(container)
        if inputs is None:
            raise EngineProblem(f"expected a worker started as {container}, found none")
        pid = None if client_pid is None else self._worker(client_pid, inputs.arguments, wait_s)
        take = Collector()
        path = Path(inputs.image)
        record = recorded_import(path)
        facts = {
            "engine": self.name,
            "version": self.version,
            "worth": "claimed" if record is None else "file",
            "image": self._image(take, path, None if record is None else record.reference),
            "confinement": confinement(take, pid),
            "limits": _limits(take, inputs, pid),
        }
        return Attestation(facts, take.reasons, pid)

    def ended(self, container: str) -> ContainerExit | None:  # noqa: ARG002
        """None: only the client's exit code records how the worker ended."""
        return None

    def remove(self, container: str) -> None:
        """Forget its inputs: the processes end with their client."""
        self._started.pop(container, None)

    def sweep(self) -> int:
        """Zero: these runtimes leave no containers behind."""
        return 0

    def _gpus(self) -> tuple[str | None, str]:
        needed = "nvidia-container-cli" if self.name == "enroot" else "nvidia-smi"
        if shutil.which(needed):
            return "gpus", f"{needed} is installed"
        fix = "libnvidia-container-tools" if self.name == "enroot" else "NVIDIA's driver"
        return None, f"{needed} is not on PATH: install {fix}"

    def _worker(self, client_pid: int, arguments: tuple[str, ...], wait_s: float) -> int | None:
        """The worker among the client's descendants (or the client itself, which becomes it by exec).

        Slurm starts it below its daemon: there the search covers all processes that started since the client.
        """
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            if has_ended(client_pid):
                raise EngineProblem(f"{self.name} ended before its worker could be attested: see its output")
            started = _descendants(client_pid) if self._starter is None else _started_since(client_pid)
            for process in started:
                if is_worker(process, arguments):
                    return int(process.pid)
            time.sleep(_POLL_S)
        return None

    def _image(self, take: Collector, path: Path, imported: str | None) -> dict[str, Any]:
        take.missing("container.image.config_digest", _NO_CONFIG)
        take.missing("container.image.diff_ids", _NO_LAYERS)
        take.missing("container.image.labels", _NO_LABELS)
        if imported is None:
            reason = f"no record beside the {SUFFIXES[self.name]} file states the digest it was imported from"
            take.missing("container.image.imported_from", reason)
        return {
            "config_digest": None,
            "diff_ids": None,
            "repo_digests": [],
            "platform": _platform(),
            "labels": None,
            "file_digest": file_digest(path),
            "imported_from": imported,
        }


def _limits(take: Collector, inputs: ContainerInputs, pid: int | None) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in LIMITS:
        path = f"container.limits.{name}"
        if getattr(inputs.limits, name) is None:
            facts[name] = None
            take.missing(path, NO_LIMIT)
        elif pid is None:
            facts[name] = None
            take.missing(path, "the worker's process was not found, so its control group is not known")
        else:
            facts[name] = take.take(path, partial(limit_in_force, pid, name))
    facts["shm_bytes"] = None
    take.missing("container.limits.shm_bytes", "this runtime does not set the size of shared memory")
    return facts


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _started_since(pid: int) -> list[psutil.Process]:
    """Processes of this user that are not older than ``pid``."""
    try:
        first = psutil.Process(pid).create_time()
    except psutil.Error:
        return []
    user = os.getuid()
    return [
        one
        for one in psutil.process_iter(("create_time", "uids", "cmdline"))
        if one.info["uids"] and one.info["uids"].real == user and one.info["create_time"] >= first
    ]


def is_worker(process: psutil.Process, arguments: tuple[str, ...]) -> bool:
    """Whether ``process`` is a Python with these last arguments.

    The client and the starter have the same last arguments, but are no Python. False for a process that has
    ended since it was listed.
    """
    try:
        python = str(process.name()).startswith("python")
        return python and list(arguments) == process.cmdline()[-len(arguments) :]
    except psutil.Error:
        return False


def _platform() -> str:
    machine = platform.machine()
    return PLATFORMS.get(machine, f"linux/{machine}")


def _version(tool: str) -> str:
    arguments = ["version"] if tool == "enroot" else ["--version"]
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise EngineProblem(f"`{tool}` does not answer: fix it") from None
    output = done.stdout.split()
    if done.returncode != 0 or not output:
        raise EngineProblem(f"`{tool}` does not print its version: fix it")
    return output[-1]
