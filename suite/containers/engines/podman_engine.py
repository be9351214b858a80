"""Podman, which has no daemon: asked by its command, which answers in JSON of docker's form."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from suite.containers.engines.attestation import (
    Attested,
    ContainerExit,
    EngineImage,
    EngineProblem,
    belongs,
    container_facts,
    gone,
    image_of,
    worker_pid,
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
_NATIVE = "or choose RUNTIME=native"


class PodmanEngine:
    """Podman on this machine. Raises EngineProblem, in one sentence, where it cannot be used."""

    def __init__(self, options: tuple[str, ...] = ()) -> None:
        """``options``: global ones, such as another ``--root``; they are not part of a worker's command."""
        if shutil.which("podman") is None:
            raise EngineProblem(f"the client `podman` is not on PATH: install podman, {_NATIVE}")
        self._options = options
        self._info = json.loads(self._run("info", "--format", "json"))
        self._version = str(self._info["version"]["Version"])
        if tuple(int(part) for part in self._version.split(".")[:2]) < OLDEST:
            raise EngineProblem(f"expected podman 4.1 or newer, found {self._version}: update it, {_NATIVE}")
        self.gpu_by, self.gpu_reason = podman_gpus()

    @property
    def name(self) -> str:
        """The word of the configuration."""
        return "podman"

    @property
    def version(self) -> str:
        """Its version."""
        return self._version

    @property
    def rootless(self) -> bool:
        """Whether it runs without root."""
        return bool(self._info["host"]["security"]["rootless"])

    @property
    def runtime(self) -> Podman:
        """What makes the commands, with the limits that nothing would enforce here."""
        host = self._info["host"]
        if self.rootless and host.get("cgroupVersion") == "v1":
            why = "without root it takes control groups of version 2"
            return Podman(True, dict.fromkeys(_CONTROLLERS, why))
        delegated = host.get("cgroupControllers") or ()
        why = "the controller is not delegated to this user"
        missing = {name: why for name, word in _CONTROLLERS.items() if word not in delegated}
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
        return image_of({**found, "Id": digest}, digest)

    def attest(self, container: str, client_pid: int | None = None, wait_s: float = 30.0) -> Attested:
        """The facts of ``container``; see :meth:`DockerEngine.attest`."""
        until = time.monotonic() + wait_s
        while True:
            client_gone = gone(client_pid)
            found = self._inspect("container", container)
            state = found["State"] if found else {}
            if found and state.get("Running") and (first := int(state.get("Pid") or 0)):
                here = belongs(first, str(found["Id"]))
                pid = worker_pid(first, bool(found["HostConfig"].get("Init"))) if here else None
                if pid is not None or not here:
                    break
            elif client_gone or state.get("Status") in ("exited", "stopped"):
                raise EngineProblem(
                    "the container ended before it could be attested: see the client's output"
                )
            if time.monotonic() > until:
                raise EngineProblem(f"expected a running container in {wait_s:.0f} s, found none")
            time.sleep(_POLL_S)
        facts, reasons = container_facts(
            (self.name, self.version), found, self.image(str(found["Image"])), pid
        )
        return Attested(facts, reasons, pid)

    def ended(self, container: str) -> ContainerExit | None:
        """How ``container`` ended; None while it runs, was never started, or is gone."""
        found = self._inspect("container", container)
        if found is None or found["State"].get("Status") not in ("exited", "stopped"):
            return None
        return ContainerExit(int(found["State"]["ExitCode"]), bool(found["State"].get("OOMKilled")))

    def remove(self, container: str) -> None:
        """End and remove ``container``; nothing happens where there is none."""
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
            last = max(_when(found["Created"]), _when(found["State"].get("FinishedAt", "")))
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
            message = f"`podman {arguments[0]}` did not answer in {_TIMEOUT_S:.0f} s: fix podman, {_NATIVE}"
            raise EngineProblem(message) from None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
            kind = _Absent if any(word in last.lower() for word in _NOT_FOUND) else EngineProblem
            raise kind(f"`podman {arguments[0]}` failed ({last}): fix podman, {_NATIVE}")
        return done.stdout


class _Absent(EngineProblem):
    """There is no container or image of that name."""


def _when(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
