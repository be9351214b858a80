"""What a worker found in its container, compared with what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from suite.containers.engines.attestation import Attestation
from suite.containers.engines.container import SCRATCH, STACK_BYTES, TMPFS, Limits
from suite.doctor.model import FAIL, OK, SKIP, WARN, Check, binary

OLDEST = (3, 10)
_UNLIMITED = -1
_CONFINED = "a run here would be rejected: report it with the engine's version"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the container was started with.

    ``labelled``: whether the suite built the image. ``cannot``: what the runtime does not enforce.
    """

    limits: Limits
    gpus: int
    labelled: bool
    cannot: Mapping[str, str]


def judge(
    report: Mapping[str, Any], attested: Attestation, clock: tuple[int, int], asked: Asked
) -> Iterator[Check]:
    """The checks of a probe's ``report``; ``clock``: this side's readings (ns) around the probe's own."""
    yield _python(report)
    yield _user(report)
    yield _root(report)
    yield _scratch(report)
    yield _network(report, asked)
    yield _shared(report, asked)
    yield _limits(attested, asked)
    yield _user_limits(report, asked)
    yield _gpu(report, asked)
    yield _clock(int(report["monotonic_ns"]), clock)
    yield _label(report, attested, asked)


def _python(report: Mapping[str, Any]) -> Check:
    version = str(report["python"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return Check("start Python", FAIL, f"{version}: the worker needs 3.10", "take a newer image")
    return Check("start Python", OK, version)


def _user(report: Mapping[str, Any]) -> Check:
    number, group = report["user"]
    found = f"user {number}, group {group}"
    if number == 0:
        return Check("start user", FAIL, f"{found}: root", _CONFINED)
    if report["capabilities"] or not report["no_new_privileges"]:
        what = f"{found}, with capabilities {report['capabilities'] or 'none'} and set-user-id programs"
        return Check("start user", WARN, what, _CONFINED)
    return Check("start user", OK, f"{found}, no capabilities, none to be gained")


def _root(report: Mapping[str, Any]) -> Check:
    loose = [place for place in ("/", "/data") if place not in report["read_only"]]
    written = [place for place in report["writable"] if place not in (SCRATCH, TMPFS)]
    if loose or written:
        what = (
            f"not mounted read-only: {', '.join(loose) or 'none'}; written to: {', '.join(written) or 'none'}"
        )
        return Check("start read-only", FAIL, what, _CONFINED)
    return Check("start read-only", OK, "root file system and data are read-only")


def _scratch(report: Mapping[str, Any]) -> Check:
    closed = [place for place in (SCRATCH, TMPFS) if place not in report["writable"]]
    if closed:
        fix = "set CACHE_DIR to a local disk (not NFS with root_squash), which the engine can mount"
        return Check("start scratch", FAIL, f"not writable: {', '.join(closed)}", fix)
    return Check("start scratch", OK, f"{SCRATCH} and {TMPFS} are writable")


def _network(report: Mapping[str, Any], asked: Asked) -> Check:
    if not report["network"]:
        return Check("start network", OK, "off: no address can be reached")
    if "network" in asked.cannot:
        return Check("start network", SKIP, f"on: {asked.cannot['network']}")
    return Check("start network", FAIL, f"on: there is a route to {', '.join(report['network'])}", _CONFINED)


def _shared(report: Mapping[str, Any], asked: Asked) -> Check:
    found = binary(report["shm_bytes"])
    wanted = asked.limits.shm_bytes
    if wanted is None:
        return Check("start shm", SKIP, f"{found}: this runtime does not set it")
    if report["shm_bytes"] != wanted:
        return Check("start shm", FAIL, f"{found}: asked for {binary(wanted)}", _CONFINED)
    return Check("start shm", OK, f"{found}, as asked")


def _limits(attested: Attestation, asked: Asked) -> Check:
    """The limits in force by the kernel's account of the worker's control group."""
    name = "start limits"
    given = [limit for limit in ("cpus", "memory_bytes") if getattr(asked.limits, limit) is not None]
    if attested.facts is None or not given:
        why = next(iter(asked.cannot.values()), "this runtime sets none")
        return Check(name, SKIP, f"not enforced here: {why}")
    found = attested.facts["limits"]
    wrong = [limit for limit in given if found[limit] != getattr(asked.limits, limit)]
    if wrong:
        whats = [
            f"{limit}: asked for {getattr(asked.limits, limit)}, in force "
            f"{found[limit] if found[limit] is not None else attested.reasons[f'container.limits.{limit}']}"
            for limit in wrong
        ]
        fix = "let the engine use control groups: run docker as root, or delegate cpu and memory to its user"
        return Check(name, FAIL, "; ".join(whats), fix)
    told = [f"{found['cpus']} processor" if limit == "cpus" else binary(found[limit]) for limit in given]
    return Check(name, OK, f"{' and '.join(told)} in force, by the kernel's account")


def _user_limits(report: Mapping[str, Any], asked: Asked) -> Check:
    limits = report["limits"]
    words = {name: "unlimited" if size == _UNLIMITED else binary(size) for name, size in limits.items()}
    found = f"locked memory {words['memlock']}, stack {words['stack']}"
    if asked.gpus and limits["memlock"] != _UNLIMITED:
        fix = "start docker as root with LimitMEMLOCK=infinity in its service"
        return Check("start ulimit", WARN, f"{found}: pinned memory may be refused", fix)
    if "ulimits" not in asked.cannot and limits["stack"] not in (_UNLIMITED, STACK_BYTES):
        what = f"{found}: asked for a stack of {binary(STACK_BYTES)}"
        return Check("start ulimit", WARN, what, "raise the daemon's own limit: LimitSTACK in its service")
    return Check("start ulimit", OK, found)


def _gpu(report: Mapping[str, Any], asked: Asked) -> Check:
    name, gpu = "start GPU", report["gpu"]
    if not asked.gpus:
        if gpu["files"]:
            fix = "take NVIDIA's runtime out as docker's default runtime, or ask for the GPU"
            return Check(name, WARN, f"{len(gpu['files'])} GPU inside, none was asked for", fix)
        return Check(name, OK, "none inside, and none was asked for")
    fix = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, restart the engine, run this again"
    if gpu["problem"]:
        what = f"{len(gpu['files'])} device files, and {gpu['problem']}"
        return Check(name, FAIL, what, fix)
    if gpu["devices"] != asked.gpus:
        return Check(name, FAIL, f"CUDA counts {gpu['devices']}, asked for {asked.gpus}", fix)
    return Check(name, OK, f"CUDA {gpu['driver_cuda']} counts {gpu['devices']}, as asked")


def _clock(inside: int, around: tuple[int, int]) -> Check:
    before, after = around
    if before <= inside <= after:
        within = (after - before) / 1e6
        return Check("start clock", OK, f"CLOCK_MONOTONIC is one inside and outside (within {within:.0f} ms)")
    away = (inside - after if inside > after else inside - before) / 1e9
    fix = "run containers in the machine's own time namespace: times of the two sides are compared in the log"
    return Check("start clock", FAIL, f"CLOCK_MONOTONIC inside is {away:+.3f} s off", fix)


def _label(report: Mapping[str, Any], attested: Attestation, asked: Asked) -> Check:
    name, told = "start label", report["label"]
    if not asked.labelled:
        found = "none: a base image, with the worker's code mounted" if told is None else "of a custom image"
        return Check(name, OK, found)
    image = (attested.facts or {}).get("image") or {}
    if not isinstance(told, dict) or told != image.get("labels"):
        what = "the label file inside is not what the image's labels say"
        return Check(name, FAIL, what, "build it anew: make image WORKLOAD=… FRAMEWORK=…")
    return Check(name, OK, f"{told.get('workload')}-{told.get('framework')}, as the image's labels say")
