"""Attestation of a running worker from outside: an engine's inspection as the log's ``env`` events hold it.

``facts`` is the object ``facts.container``; ``reasons`` explains its nulls by dotted paths from
``container.`` on. It holds only facts that are equal in all repeats: no id of a container, no process
number, no path of this machine, no user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil

from suite.containers.engines.container import ContainerInputs, Runtime
from suite.containers.engines.native import WorkerCommand
from suite.log.processors import compact_list, expand_list
from suite.telemetry import cgroup
from suite.telemetry.reading import Collector, Unavailable, describe

LABEL_PREFIX = "suite."
NOT_A_FILE = "the image is an engine's, not a file"
NO_LIMIT = "no limit is set"
# Limits that the kernel reports by a control group, and their names there.
LIMITS = {"cpus": "cpu_limit", "cpuset": "cpuset", "memory_bytes": "memory_limit_bytes"}
ENDED = ("exited", "dead", "stopped")  # states of a container in docker and podman
Facts = dict[str, Any]


class EngineProblem(Exception):
    """An engine that does not answer or lacks what was asked for; the message names the fix."""


@dataclass(frozen=True, slots=True)
class Attestation:
    """``facts.container`` of the log (None: no container), the reasons of its nulls, and the worker's pid.

    ``pid`` is None where the worker's process is not visible on this machine.
    """

    facts: Facts | None
    reasons: dict[str, str]
    pid: int | None


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a worker ended: its exit code (None: unknown), and whether it was killed for lack of memory."""

    exit_code: int | None
    oom_killed: bool


@dataclass(frozen=True, slots=True)
class EngineImage:
    """An image that an engine has. ``repo_digests``: ``repository@sha256:…``, empty if loaded from a file."""

    id: str
    config_digest: str | None
    diff_ids: tuple[str, ...]
    repo_digests: tuple[str, ...]
    platform: str
    labels: Mapping[str, str]
    size: int


class Engine(Protocol):
    """A container engine that answers on this machine."""

    @property
    def name(self) -> str:
        """``docker``, ``podman``, ``apptainer`` or ``enroot``."""

    @property
    def version(self) -> str:
        """Its version as it states it."""

    @property
    def rootless(self) -> bool:
        """Whether it runs without root."""

    @property
    def gpu_by(self) -> str | None:
        """How it hands out GPUs: ``cdi``, ``gpus``, or None for an engine that cannot."""

    @property
    def runtime(self) -> Runtime:
        """The runtime that builds its commands."""

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command that starts a worker."""

    def image(self, reference: str) -> EngineImage | None:
        """The image ``reference``, None where the engine does not have it."""

    def attest(self, container: str, client_pid: int | None = None, wait_s: float = 30.0) -> Attestation:
        """The facts of the running ``container``. Raises EngineProblem where it does not run in time."""

    def ended(self, container: str) -> ContainerExit | None:
        """How ``container`` ended; None while it runs, or where the engine does not know it."""

    def remove(self, container: str) -> None:
        """End and remove ``container``; does nothing where there is none."""

    def sweep(self) -> int:
        """Remove the containers that earlier runs left behind; returns their number."""


def container_facts(
    engine: tuple[str, str], container: Mapping[str, Any], image: EngineImage | None, pid: int | None
) -> tuple[Facts, dict[str, str]]:
    """``facts.container`` and its reasons, from an inspection in docker's format.

    ``engine``: name and version. ``pid``: the worker on this machine, whose control group has the limits in
    force; with None the limits are those that the engine reports.
    """
    take = Collector()
    host = container["HostConfig"]
    facts = {
        "engine": engine[0],
        "version": engine[1],
        "worth": "engine",
        "image": _image(take, image),
        "confinement": _confinement(take, container, host),
        "limits": _limits(take, host, pid),
    }
    return facts, take.reasons


def engine_image(found: Mapping[str, Any], config_digest: str | None) -> EngineImage:
    """An image from its inspection in docker's format."""
    layers = (found.get("RootFS") or {}).get("Layers") or ()
    labels = (found.get("Config") or {}).get("Labels") or {}
    variant = f"/{found['Variant']}" if found.get("Variant") else ""
    return EngineImage(
        id=str(found["Id"]),
        config_digest=config_digest,
        diff_ids=tuple(str(layer) for layer in layers),
        repo_digests=tuple(sorted(found.get("RepoDigests") or ())),
        platform=f"{found.get('Os', '')}/{found.get('Architecture', '')}{variant}",
        labels={str(name): str(value) for name, value in labels.items()},
        size=int(found.get("Size") or 0),
    )


def worker_pid(first: int, init: bool) -> int | None:
    """The worker's pid; ``first`` is its container's first process, which must be on this machine.

    With ``init`` the worker is the only child of ``first``; None until it has started.
    """
    if not init:
        return first
    try:
        children = psutil.Process(first).children()
    except psutil.Error:
        return None
    return children[0].pid if children else None


def belongs_to(pid: int, container_id: str) -> bool:
    """Whether process ``pid`` of this machine is in the container: its control group or mounts have the id.

    An engine on another machine, in a virtual machine or in another pid namespace numbers processes
    differently.
    """
    for name in ("cgroup", "mountinfo"):
        try:
            if container_id in Path(f"/proc/{pid}/{name}").read_text(errors="replace"):
                return True
        except OSError:
            continue
    return False


def has_ended(pid: int | None) -> bool:
    """Whether the client ``pid`` has ended; False for None."""
    if pid is None:
        return False
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until_running(
    inspect: Callable[[], Any], client_pid: int | None, wait_s: float, poll_s: float
) -> tuple[dict[str, Any], int | None]:
    """The inspection of a running container, and its worker's pid (None: not visible on this machine).

    ``inspect`` returns the inspection in docker's format, None while there is no container. Raises
    EngineProblem where the container or its client ends before, or the worker has not started in time.
    """
    until = time.monotonic() + wait_s
    while True:
        client_ended = has_ended(client_pid)  # read before the inspection that decides
        found = inspect()
        state = found["State"] if found else {}
        if found and state.get("Running") and (first := int(state.get("Pid") or 0)):
            visible = belongs_to(first, str(found["Id"]))
            pid = worker_pid(first, bool(found["HostConfig"].get("Init"))) if visible else None
            if pid is not None or not visible:
                return found, pid
        elif state.get("Status") in ENDED:
            reason = state.get("Error") or f"exit code {state.get('ExitCode')}"
            raise EngineProblem(f"the container ended before it could be attested ({reason})")
        elif client_ended:
            raise EngineProblem("the client ended without a running container: see its output")
        if time.monotonic() > until:
            status = state.get("Status", "absent")
            raise EngineProblem(f"expected a running container in {wait_s:.0f} s, found it {status}")
        time.sleep(poll_s)


def container_exit(found: Mapping[str, Any] | None) -> ContainerExit | None:
    """How the container of an inspection ended; None while it runs, was never started, or is gone."""
    if found is None or found["State"].get("Status") not in ENDED:
        return None
    return ContainerExit(int(found["State"]["ExitCode"]), bool(found["State"].get("OOMKilled")))


def parse_time(text: str) -> datetime:
    """A time as engines write it (RFC 3339, nanoseconds); the year 1 for a text that is no time."""
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def limit_in_force(pid: int, name: str) -> Any:
    """The limit ``name`` (a field of Limits) of the process's control group, normalised as in Limits.

    Raises Unavailable where the kernel enforces none.
    """
    try:
        data, reasons = cgroup.limits(cgroup.locate(pid))
    except OSError as problem:
        raise Unavailable(describe(problem)) from None
    kernel = LIMITS[name]
    if data[kernel] is None:
        raise Unavailable(f"nothing enforces it: {reasons[kernel]}")
    return compact_list(expand_list(data[kernel])) if name == "cpuset" else data[kernel]


def digests_only(repo_digests: Sequence[str]) -> list[str]:
    """The digests without the repositories: the log must not reveal the names of private image registries."""
    return sorted({reference.rpartition("@")[2] for reference in repo_digests})


def suite_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The suite's labels without their prefix; no rule reads other labels."""
    return {
        name.removeprefix(LABEL_PREFIX): labels[name]
        for name in sorted(labels)
        if name.startswith(LABEL_PREFIX)
    }


def _image(take: Collector, image: EngineImage | None) -> Facts | None:
    if image is None:
        take.missing("container.image", "the engine no longer has the image")
        return None
    if image.config_digest is None:
        reason = "with containerd's image store the engine names an image by its manifest"
        take.missing("container.image.config_digest", reason)
    for name in ("file_digest", "imported_from"):
        take.missing(f"container.image.{name}", NOT_A_FILE)
    return {
        "config_digest": image.config_digest,
        "diff_ids": list(image.diff_ids),
        "repo_digests": digests_only(image.repo_digests),
        "platform": image.platform,
        "labels": suite_labels(image.labels),
        "file_digest": None,
        "imported_from": None,
    }


def _confinement(take: Collector, container: Mapping[str, Any], host: Mapping[str, Any]) -> Facts:
    config = container["Config"]
    devices = sorted(str(device["PathOnHost"]) for device in host.get("Devices") or ())
    mounts = [str(mount["Destination"]) for mount in container.get("Mounts") or () if mount.get("RW")]
    return {
        "privileged": bool(host.get("Privileged")),
        "network": str(host.get("NetworkMode")),
        "read_only": bool(host.get("ReadonlyRootfs")),
        "tty": bool(config.get("Tty")),
        "root": take.take("container.confinement.root", lambda: _root(str(config.get("User") or ""))),
        "capabilities_added": sorted(host.get("CapAdd") or ()),
        "writable": sorted({*mounts, *(host.get("Tmpfs") or ())}),
        "ipc": str(host.get("IpcMode")),
        **({"host_devices": devices} if devices else {}),
    }


def _root(user: str) -> bool:
    name = user.partition(":")[0]
    if name in ("", "root"):
        return True
    if not name.isdigit():
        raise Unavailable("the user is stated by a name that only the image can resolve")
    return int(name) == 0


def _limits(take: Collector, host: Mapping[str, Any], pid: int | None) -> Facts:
    """Limits in force where the engine set one: as the kernel reports, else as the engine reports."""
    asked = {
        "cpus": _asked_cpus(host),
        "cpuset": compact_list(expand_list(host.get("CpusetCpus") or "")) or None,
        "memory_bytes": int(host.get("Memory") or 0) or None,
    }
    facts: Facts = {}
    for name, value in asked.items():
        path = f"container.limits.{name}"
        if value is None:
            facts[name] = None
            take.missing(path, NO_LIMIT)
        else:
            facts[name] = value if pid is None else take.take(path, partial(limit_in_force, pid, name))
    shared = host.get("IpcMode") == "host"
    facts["shm_bytes"] = None if shared else int(host.get("ShmSize") or 0) or None
    if facts["shm_bytes"] is None:
        reason = "shared memory is the machine's" if shared else "the engine does not report it"
        take.missing("container.limits.shm_bytes", reason)
    return facts


def _asked_cpus(host: Mapping[str, Any]) -> str | None:
    if nano := int(host.get("NanoCpus") or 0):
        cpus = Decimal(nano) / 10**9
    elif int(host.get("CpuQuota") or 0) > 0:
        cpus = Decimal(host["CpuQuota"]) / Decimal(host.get("CpuPeriod") or 100_000)
    else:
        return None
    return format(cpus.quantize(Decimal("0.001")).normalize(), "f")
