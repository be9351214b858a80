"""Docker through its SDK: connection, images, attestation, exit and removal of containers."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from suite.containers.engines.attestation import (
    ENDED,
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
from suite.containers.engines.container import RUN_LABEL, ContainerInputs
from suite.containers.engines.docker import Docker
from suite.containers.engines.gpu import docker_gpus
from suite.containers.engines.native import WorkerCommand

OLDEST = (20, 10)
SOCKET = "unix:///var/run/docker.sock"
SNAPSHOTTER = "io.containerd.snapshotter.v1"
LEFTOVER_S = 60.0  # a harness reads how its container ended within seconds
_POLL_S = 0.05


class DockerEngine:
    """The docker engine of this machine. Raises EngineProblem, in one sentence, where none can be used."""

    name = "docker"

    def __init__(self, timeout_s: float = 60.0) -> None:
        if shutil.which("docker") is None:
            raise EngineProblem("the client `docker` is not on PATH: install docker")
        self._api = _connect(timeout_s)
        self._info: dict[str, Any] = self._api.info()
        self.version = str(self._api.version()["Version"])  # the engine's, not the client's
        if self._info.get("OSType") != "linux" or _numbers(self.version) < OLDEST:
            found = f"{self.version} for {self._info.get('OSType')}"
            raise EngineProblem(f"expected docker 20.10 or newer for linux, found {found}: update it")
        self.gpu_by, self.gpu_reason = docker_gpus(self._info)

    @property
    def rootless(self) -> bool:
        """Whether the engine runs without root."""
        return any("rootless" in option for option in self._info.get("SecurityOptions") or ())

    @property
    def containerd_store(self) -> bool:
        """Whether containerd keeps the images: an image's id is then its manifest's digest."""
        return any(SNAPSHOTTER in pair for pair in self._info.get("DriverStatus") or ())

    @property
    def runtime(self) -> Docker:
        """The runtime that builds the commands, with the limits that the engine's kernel does not enforce."""
        known = {"cpus": "CpuCfsQuota", "cpuset": "CPUSet", "memory_bytes": "MemoryLimit"}
        why = "the engine has no control group for it"
        off = self._info.get("CgroupDriver") == "none"
        missing = {limit: why for limit, field in known.items() if off or self._info.get(field) is False}
        return Docker(self.gpu_by, self.rootless, missing)

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command that starts a worker."""
        return self.runtime.command(inputs)

    def image(self, reference: str) -> EngineImage | None:
        """The image ``reference``: an id, ``repository:tag`` or ``repository@sha256:…``; None: absent."""
        found = self._ask(self._api.inspect_image, reference)
        if found is None:
            return None
        return engine_image(found, None if self.containerd_store else str(found["Id"]))

    def attest(self, container: str, client_pid: int | None = None, wait_s: float = 30.0) -> Attestation:
        """The facts of ``container``, waiting until its worker runs.

        ``client_pid``: the client that starts it, so that its failure ends the waiting. Raises EngineProblem
        where the container does not run in time.
        """
        inspect = partial(self._ask, self._api.inspect_container, container)
        found, pid = wait_until_running(inspect, client_pid, wait_s, _POLL_S)
        engine = (self.name, self.version)
        facts, reasons = container_facts(engine, found, self.image(str(found["Image"])), pid)
        return Attestation(facts, reasons, pid)

    def ended(self, container: str) -> ContainerExit | None:
        """How ``container`` ended; None while it runs, was never started, or is gone."""
        return container_exit(self._ask(self._api.inspect_container, container))

    def remove(self, container: str) -> None:
        """End and remove ``container`` and its anonymous volumes; does nothing where there is none."""
        try:
            self._ask(self._api.remove_container, container, v=True, force=True)
        except EngineProblem as problem:
            if getattr(problem.__cause__, "status_code", None) != 409:  # another process is removing it
                raise

    def sweep(self, older_than_s: float = LEFTOVER_S, label: str = RUN_LABEL) -> int:
        """Remove containers of earlier runs that have ended or were never started; returns their number.

        Recent ones stay: they may belong to a concurrent run, which has yet to read how they ended.
        """
        removed = 0
        bound = datetime.now(UTC) - timedelta(seconds=older_than_s)
        for row in self._ask(self._api.containers, all=True, filters={"label": label}):
            found = self._ask(self._api.inspect_container, row["Id"])
            state = found["State"] if found else {}
            if found and state.get("Status") in (*ENDED, "created"):
                finished = max(parse_time(found["Created"]), parse_time(state.get("FinishedAt", "")))
                if finished <= bound:
                    self.remove(row["Id"])
                    removed += 1
        return removed

    @staticmethod
    def _ask(call: Any, *names: str, **options: Any) -> Any:
        """What the engine answers; None where there is no object of that name. Raises EngineProblem."""
        errors = _sdk().errors
        try:
            return call(*names, **options)
        except errors.NotFound:
            return None
        except (errors.DockerException, OSError) as problem:  # OSError: also those of the connection
            why = getattr(problem, "explanation", None) or type(problem).__name__
            raise EngineProblem(f"docker did not do what it was asked for ({why}): see its log") from problem


def _sdk() -> Any:
    """Docker's SDK, which has no types; imported here because few commands need it."""
    import docker  # type: ignore[import-untyped]

    return docker


def _connect(timeout_s: float) -> Any:
    """The SDK's low-level client of the engine that the ``docker`` command itself would use."""
    docker = _sdk()
    # As the command does: DOCKER_HOST, else the context's address, else the usual socket.
    address = (
        os.environ.get("DOCKER_HOST") or docker.ContextAPI.kwargs_from_context().get("base_url") or SOCKET
    )
    if not address.startswith(("unix://", "http+unix://")):
        raise EngineProblem(
            f"the engine at {address} is not on this machine and cannot mount its folders: "
            "unset DOCKER_HOST and DOCKER_CONTEXT"
        )
    try:
        return docker.from_env(timeout=timeout_s).api
    except docker.errors.DockerException as problem:
        raise EngineProblem(_why_not(problem, address.removeprefix("http+"))) from problem


def _why_not(problem: BaseException, address: str) -> str:
    """One sentence for a connection that failed; the SDK nests the cause in several exceptions."""
    causes: list[Any] = [problem]
    for cause in causes:  # grows while it is walked
        inner = [*cause.args, cause.__cause__, cause.__context__, getattr(cause, "reason", None)]
        causes.extend(each for each in inner if isinstance(each, BaseException) and each not in causes)
    if any(isinstance(cause, PermissionError) for cause in causes):
        fix = "sudo usermod -aG docker $USER and log in again"
        return f"the client is installed, but this user may not talk to {address}: {fix}"
    if any(isinstance(cause, FileNotFoundError | ConnectionRefusedError) for cause in causes):
        fix = "start it (sudo systemctl start docker)"
        return f"the client is installed, but no daemon answers at {address}: {fix}"
    if any(isinstance(cause, TimeoutError) for cause in causes) or "timed out" in str(problem).lower():
        return f"the daemon at {address} does not answer in time: restart it"
    return f"the daemon at {address} cannot be used ({str(problem)[:200]}): fix that"


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.partition("-")[0].partition("+")[0].split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit())
