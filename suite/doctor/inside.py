"""Checks of a probe's report from inside a container, compared with the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from suite.containers.engines.attestation import Attestation
from suite.containers.engines.container import SCRATCH, STACK_BYTES, TMPFS, Limits
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, binary

OLDEST = (3, 10)
_UNLIMITED = -1
_REPORT = "a run in this engine would be rejected: report it with the engine's version"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The options that the container was started with.

    ``labelled``: whether the suite built the image. ``cannot``: options that the runtime cannot enforce, with
    the reasons.
    """

    limits: Limits
    gpus: int
    labelled: bool
    cannot: Mapping[str, str]


def container_checks(
    report: Mapping[str, Any], attested: Attestation, clock: tuple[int, int], request: ContainerRequest
) -> Iterator[DoctorCheck]:
    """The checks of a probe's ``report``; ``clock``: readings outside (ns), before and after the probe's."""
    yield _python(report)
    yield _user(report)
    yield _root(report)
    yield _scratch(report)
    yield _network(report, request)
    yield _shared(report, request)
    yield _limits(attested, request)
    yield _user_limits(report, request)
    yield _gpu(report, request)
    yield _clock(int(report["monotonic_ns"]), clock)
    yield _label(report, attested, request)


def _python(report: Mapping[str, Any]) -> DoctorCheck:
    version = str(report["python"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return DoctorCheck("start Python", FAIL, f"{version}: the worker needs 3.10", "use a newer image")
    return DoctorCheck("start Python", OK, version)


def _user(report: Mapping[str, Any]) -> DoctorCheck:
    number, group = report["user"]
    found = f"user {number}, group {group}"
    if number == 0:
        return DoctorCheck("start user", FAIL, f"{found}: root", _REPORT)
    if report["capabilities"] or not report["no_new_privileges"]:
        found += f", capabilities {report['capabilities'] or 'none'}, set-user-id programs not disabled"
        return DoctorCheck("start user", WARN, found, _REPORT)
    return DoctorCheck("start user", OK, f"{found}, no capabilities, set-user-id programs disabled")


def _root(report: Mapping[str, Any]) -> DoctorCheck:
    writable_mounts = [path for path in ("/", "/data") if path not in report["read_only"]]
    written = [path for path in report["writable"] if path not in (SCRATCH, TMPFS)]
    if writable_mounts or written:
        found = f"not mounted read-only: {', '.join(writable_mounts) or 'none'}; "
        found += f"writable: {', '.join(written) or 'none'}"
        return DoctorCheck("start read-only", FAIL, found, _REPORT)
    return DoctorCheck("start read-only", OK, "root file system and data are read-only")


def _scratch(report: Mapping[str, Any]) -> DoctorCheck:
    read_only = [path for path in (SCRATCH, TMPFS) if path not in report["writable"]]
    if read_only:
        fix = "set CACHE_DIR to a local disk that the engine can mount (not NFS with root_squash)"
        return DoctorCheck("start scratch", FAIL, f"not writable: {', '.join(read_only)}", fix)
    return DoctorCheck("start scratch", OK, f"{SCRATCH} and {TMPFS} are writable")


def _network(report: Mapping[str, Any], request: ContainerRequest) -> DoctorCheck:
    if not report["network"]:
        return DoctorCheck("start network", OK, "off: no route to any address")
    if "network" in request.cannot:
        return DoctorCheck("start network", SKIP, f"on: {request.cannot['network']}")
    return DoctorCheck(
        "start network", FAIL, f"on: there is a route to {', '.join(report['network'])}", _REPORT
    )


def _shared(report: Mapping[str, Any], request: ContainerRequest) -> DoctorCheck:
    found = binary(report["shm_bytes"])
    wanted = request.limits.shm_bytes
    if wanted is None:
        return DoctorCheck("start shm", SKIP, f"{found}: this runtime does not set it")
    if report["shm_bytes"] != wanted:
        return DoctorCheck("start shm", FAIL, f"expected {binary(wanted)}, found {found}", _REPORT)
    return DoctorCheck("start shm", OK, f"{found}, as requested")


def _limits(attested: Attestation, request: ContainerRequest) -> DoctorCheck:
    """The limits in force, read from the worker's control group."""
    name = "start limits"
    given = [limit for limit in ("cpus", "memory_bytes") if getattr(request.limits, limit) is not None]
    if attested.facts is None or not given:
        why = next(iter(request.cannot.values()), "this runtime sets none")
        return DoctorCheck(name, SKIP, f"not enforced: {why}")
    found = attested.facts["limits"]
    wrong = [limit for limit in given if found[limit] != getattr(request.limits, limit)]
    if wrong:
        differences = [
            f"{limit}: expected {getattr(request.limits, limit)}, found "
            f"{found[limit] if found[limit] is not None else attested.reasons[f'container.limits.{limit}']}"
            for limit in wrong
        ]
        fix = "let the engine use control groups: run docker as root, or delegate cpu and memory to its user"
        return DoctorCheck(name, FAIL, "; ".join(differences), fix)
    enforced = [f"{found['cpus']} processor" if limit == "cpus" else binary(found[limit]) for limit in given]
    return DoctorCheck(name, OK, f"{' and '.join(enforced)} enforced by the kernel")


def _user_limits(report: Mapping[str, Any], request: ContainerRequest) -> DoctorCheck:
    limits = report["limits"]
    shown = {name: "unlimited" if size == _UNLIMITED else binary(size) for name, size in limits.items()}
    found = f"locked memory {shown['memlock']}, stack {shown['stack']}"
    if request.gpus and limits["memlock"] != _UNLIMITED:
        fix = "start docker as root with LimitMEMLOCK=infinity in its service"
        return DoctorCheck("start ulimit", WARN, f"{found}: pinned memory may be refused", fix)
    if "ulimits" not in request.cannot and limits["stack"] not in (_UNLIMITED, STACK_BYTES):
        found += f": expected a stack of {binary(STACK_BYTES)}"
        return DoctorCheck("start ulimit", WARN, found, "raise the daemon's limit: LimitSTACK in its service")
    return DoctorCheck("start ulimit", OK, found)


def _gpu(report: Mapping[str, Any], request: ContainerRequest) -> DoctorCheck:
    name, gpu = "start GPU", report["gpu"]
    if not request.gpus:
        if gpu["files"]:
            fix = "remove NVIDIA's runtime as docker's default runtime"
            return DoctorCheck(name, WARN, f"{len(gpu['files'])} GPU in the container, none requested", fix)
        return DoctorCheck(name, OK, "none in the container, as requested")
    fix = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, restart the engine, run this again"
    if gpu["problem"]:
        return DoctorCheck(name, FAIL, f"{len(gpu['files'])} device files, but {gpu['problem']}", fix)
    if gpu["devices"] != request.gpus:
        return DoctorCheck(name, FAIL, f"expected {request.gpus} devices, CUDA finds {gpu['devices']}", fix)
    return DoctorCheck(name, OK, f"CUDA {gpu['driver_cuda']} finds {gpu['devices']}, as requested")


def _clock(inside: int, around: tuple[int, int]) -> DoctorCheck:
    before, after = around
    if before <= inside <= after:
        within = (after - before) / 1e6
        return DoctorCheck(
            "start clock", OK, f"CLOCK_MONOTONIC inside equals outside (within {within:.0f} ms)"
        )
    away = (inside - after if inside > after else inside - before) / 1e9
    fix = "run containers in the host's time namespace: the log compares times from inside and outside"
    return DoctorCheck("start clock", FAIL, f"CLOCK_MONOTONIC inside is {away:+.3f} s off", fix)


def _label(report: Mapping[str, Any], attested: Attestation, request: ContainerRequest) -> DoctorCheck:
    name, label = "start label", report["label"]
    if not request.labelled:
        found = "none: a base image, with the worker's code mounted" if label is None else "of a custom image"
        return DoctorCheck(name, OK, found)
    image = (attested.facts or {}).get("image") or {}
    if not isinstance(label, dict) or label != image.get("labels"):
        found = "the label file in the container differs from the image's labels"
        return DoctorCheck(name, FAIL, found, "build it again: make image WORKLOAD=… FRAMEWORK=…")
    return DoctorCheck(
        name, OK, f"{label.get('workload')}-{label.get('framework')}, equal to the image's labels"
    )
