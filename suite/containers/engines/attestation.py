"""What runs, said from outside: the facts of an engine's inspection, as the log's ``env`` events hold them.

``facts`` is the object ``facts.container``; its nulls are explained in ``reasons`` by dotted paths from
``container.`` on. Only settled facts are in it, equal in all repeats: no id of a container, no process
number, no path of this machine, no user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil

from suite.containers.engines.container import ContainerInputs, Runtime
from suite.containers.engines.native import WorkerCommand
from suite.telemetry import cgroup
from suite.telemetry.reading import Collector, Unavailable, compact_list, describe, expand_list

LABEL_PREFIX = "suite."
NOT_A_FILE = "the image is an engine's, not a file"
NO_LIMIT = "no limit is set"
# Limits that the kernel tells by a control group, and what they are called there.
LIMITS = {"cpus": "cpu_limit", "cpuset": "cpuset", "memory_bytes": "memory_limit_bytes"}
Facts = dict[str, Any]


class EngineProblem(Exception):
    """An engine that does not answer, or that has not what was asked for; the text names the fix."""


@dataclass(frozen=True, slots=True)
class Attested:
    """What runs: ``facts.container`` of the log (None: no container), the reasons of its nulls, the worker.

    ``pid``: the worker's process on this machine, None where it cannot be seen from here.
    """

    facts: Facts | None
    reasons: dict[str, str]
    pid: int | None


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a worker ended: its exit code (None: not known), and whether it was killed for lack of memory."""

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
    """A runtime that answers on this machine."""

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
        """How it hands out GPUs; None: not at all."""

    @property
    def runtime(self) -> Runtime:
        """What makes its commands."""

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command that starts a worker."""

    def image(self, reference: str) -> EngineImage | None:
        """The image ``reference``, None where the engine does not have it."""

    def attest(self, container: str, client_pid: int | None = None, wait_s: float = 30.0) -> Attested:
        """The facts of the running ``container``. Raises EngineProblem where it does not run in time."""

    def ended(self, container: str) -> ContainerExit | None:
        """How ``container`` ended; None while it runs, or where nothing is known of it."""

    def remove(self, container: str) -> None:
        """End and remove ``container``; nothing happens where there is none."""

    def sweep(self) -> int:
        """Remove what earlier runs left behind; how many containers that were."""


def container_facts(
    engine: tuple[str, str], container: Mapping[str, Any], image: EngineImage | None, pid: int | None
) -> tuple[Facts, dict[str, str]]:
    """``facts.container`` and its reasons, from an inspection in docker's form.

    ``engine``: name and version. ``pid``: the worker as seen from here, whose control group tells the
    limits in force; None: the engine's word for them.
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


def image_of(found: Mapping[str, Any], config_digest: str | None) -> EngineImage:
    """An image from its inspection in docker's form."""
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
    """The worker's process; ``first`` is its container's first process, which must be on this machine.

    With an init the worker is its only child, None until that was started.
    """
    if not init:
        return first
    try:
        children = psutil.Process(first).children()
    except psutil.Error:
        return None
    return children[0].pid if children else None


def belongs(pid: int, container_id: str) -> bool:
    """Whether process ``pid`` here is of the container: its control group or its mounts bear the id.

    An engine on another machine, in a virtual machine or beside us in a namespace counts otherwise.
    """
    for name in ("cgroup", "mountinfo"):
        try:
            if container_id in Path(f"/proc/{pid}/{name}").read_text(errors="replace"):
                return True
        except OSError:
            continue
    return False


def gone(pid: int | None) -> bool:
    """Whether the client ``pid`` has ended; never for None."""
    if pid is None:
        return False
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def limit_in_force(pid: int, name: str) -> Any:
    """The limit ``name`` (a field of Limits) of the process's control group, in the form of Limits.

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
    """The digests without the repositories: where an image was pulled from is nobody's business."""
    return sorted({reference.rpartition("@")[2] for reference in repo_digests})


def suite_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The suite's own labels without their prefix; foreign ones say nothing that is checked."""
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
    }


def _root(user: str) -> bool:
    name = user.partition(":")[0]
    if name in ("", "root"):
        return True
    if not name.isdigit():
        raise Unavailable("the user is stated by a name that the image gives a meaning to")
    return int(name) == 0


def _limits(take: Collector, host: Mapping[str, Any], pid: int | None) -> Facts:
    """Limits in force where the engine set one: as the kernel tells, else as the engine tells."""
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
        reason = "shared memory is the machine's" if shared else "the engine does not tell"
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
