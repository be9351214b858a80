"""Podman, which has no daemon: its command answers in JSON of docker's format."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from suite.containers.engines.attestation import (
    Attestation,
    ContainerExit,
    EngineImage,
    EngineProblem,
    container_exit,
    container_facts,
    engine_image,
    parse_time,
    wait_until_running,
)
from suite.containers.engines.container import RUN_LABEL, ContainerInputs, client_environment
from suite.containers.engines.gpu import podman_gpus
from suite.containers.engines.native import WorkerCommand
from suite.containers.engines.podman import Podman

OLDEST = (4, 1)
LEFTOVER_S = 60.0
_TIMEOUT_S = 60.0
_POLL_S = 0.1
_CONTROLLERS = {"cpus": "cpu", "cpuset": "cpuset", "memory_bytes": "memory"}
_NOT_FOUND = ("no such", "no container with", "image not known")


class PodmanEngine:
    """Podman on this machine. Raises EngineProblem, in one sentence, where it cannot be used."""

    name = "podman"

    def __init__(self, options: tuple[str, ...] = ()) -> None:
        """``options``: global ones, such as another ``--root``; they are not part of a worker's command."""
        if shutil.which("podman") is None:
            raise EngineProblem("the client `podman` is not on PATH: install podman")
        self._options = options
        self._info = json.loads(self._run("info", "--format", "json"))
        self.version = str(self._info["version"]["Version"])
        if tuple(int(part) for part in self.version.split(".")[:2]) < OLDEST:
            raise EngineProblem(f"expected podman 4.1 or newer, found {self.version}: update it")
        self.gpu_by, self.gpu_reason = podman_gpus()

    @property
    def rootless(self) -> bool:
        """Whether it runs without root."""
        return bool(self._info["host"]["security"]["rootless"])

    @property
    def runtime(self) -> Podman:
        """The runtime that builds the commands, with the limits that nothing enforces on this machine."""
        host = self._info["host"]
        if self.rootless and host.get("cgroupVersion") == "v1":
            why = "without root it needs control groups of version 2"
            return Podman(True, dict.fromkeys(_CONTROLLERS, why))
        delegated = host.get("cgroupControllers") or ()
        why = "the controller is not delegated to this user"
        missing = {name: why for name, controller in _CONTROLLERS.items() if controller not in delegated}
        return Podman(self.rootless, missing if self.rootless else {})

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command that starts a worker."""
        return self.runtime.command(inputs)

    def image(self, reference: str) -> EngineImage | None:
        """The image ``reference``; podman's id of an image is its config's digest."""
        found = self._inspect("image", reference)
        if found is None:
            return None
        digest = "sha256:" + str(found["Id"]).removeprefix("sha256:")
        return engine_image({**found, "Id": digest}, digest)

    def attest(self, container: str, client_pid: int | None = None, wait_s: float = 30.0) -> Attestation:
        """The facts of ``container``; see :meth:`DockerEngine.attest`."""
        inspect = partial(self._inspect, "container", container)
        found, pid = wait_until_running(inspect, client_pid, wait_s, _POLL_S)
        facts, reasons = container_facts(
            (self.name, self.version), found, self.image(str(found["Image"])), pid
        )
        return Attestation(facts, reasons, pid)

    def ended(self, container: str) -> ContainerExit | None:
        """How ``container`` ended; None while it runs, was never started, or is gone."""
        return container_exit(self._inspect("container", container))

    def remove(self, container: str) -> None:
        """End and remove ``container``; does nothing where there is none."""
        if self._inspect("container", container) is not None:
            self._run("rm", "--force", "--volumes", "--time", "0", container)

    def sweep(self, older_than_s: float = LEFTOVER_S, label: str = RUN_LABEL) -> int:
        """Remove ended containers of earlier runs; see :meth:`DockerEngine.sweep`."""
        filters = ("--filter", f"label={label}")
        text = self._run("ps", "--all", "--no-trunc", "--quiet", *filters)
        bound = datetime.now(UTC) - timedelta(seconds=older_than_s)
        removed = 0
        for name in text.split():
            found = self._inspect("container", name)
            if found is None or found["State"].get("Status") in ("running", "paused", "stopping"):
                continue
            last = max(parse_time(found["Created"]), parse_time(found["State"].get("FinishedAt", "")))
            if last <= bound:
                self.remove(name)
                removed += 1
        return removed

    def _inspect(self, kind: str, name: str) -> dict[str, Any] | None:
        try:
            text = self._run(kind, "inspect", name)
        except _Absent:
            return None
        rows = json.loads(text)
        return dict(rows[0]) if rows else None

    def _run(self, *arguments: str) -> str:
        argv = ["podman", *self._options, *arguments]
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                env=client_environment(),
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"`podman {arguments[0]}` did not answer in {_TIMEOUT_S:.0f} s: fix podman"
            raise EngineProblem(message) from None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
            kind = _Absent if any(text in last.lower() for text in _NOT_FOUND) else EngineProblem
            raise kind(f"`podman {arguments[0]}` failed ({last}): fix podman")
        return done.stdout


class _Absent(EngineProblem):
    """There is no container or image of that name."""
