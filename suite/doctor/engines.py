"""The container engines: whether they answer, their image storage, and their access to GPUs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from suite import rules
from suite.containers.engines.attestation import Engine
from suite.containers.engines.choice import ORDER, find
from suite.containers.engines.container import client_environment
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.file_image import SUFFIXES
from suite.containers.images.build import local_base
from suite.containers.images.lock import Base, base_for
from suite.containers.images.preflight import GpuFacts, disk_budget, refusal
from suite.doctor.model import FAIL, OK, SKIP, WARN, CheckFunction, DoctorCheck, Subject, gigabytes
from suite.plan.images import PLATFORM, image_file

_ASK_S = 20.0


def check_functions(runtime: str) -> list[tuple[str, CheckFunction]]:
    """The checks of engines for the option ``runtime``, by name."""
    names = ORDER if runtime == "auto" else (runtime,) if runtime in ORDER else ()
    engines = [(f"engine {name}", partial(_engine, name)) for name in names]
    return [*engines, ("engine", _chosen), ("engine storage", storage), ("engine GPU", gpu_access)]


def _engine(name: str, subject: Subject) -> Iterator[DoctorCheck]:
    check = f"engine {name}"
    found = find(name, need_gpu=False)
    if found.engine is not None:
        subject.engines[name] = found.engine
        root = "without root" if found.engine.rootless else "as root"
        yield DoctorCheck(check, OK, f"{name} {found.engine.version} answers, {root}")
        return
    # "docker: <problem>: <fix>"
    problem, _, fix = "; ".join(found.tried).removeprefix(f"{name}: ").rpartition(": ")
    if subject.runtime == name:
        yield DoctorCheck(check, FAIL, problem, fix)
    elif "is not on PATH" in problem:
        yield DoctorCheck(check, SKIP, problem)
    else:
        yield DoctorCheck(check, WARN, problem, fix)


def _chosen(subject: Subject) -> Iterator[DoctorCheck]:
    if subject.runtime == "native":
        yield DoctorCheck("engine", SKIP, "RUNTIME=native needs no engine")
    elif subject.engine is not None:
        yield DoctorCheck("engine", OK, f"runs in containers use {subject.engine.name}")
    else:
        found = "no engine answers: runs are native; closed, custom images and limits are refused"
        yield DoctorCheck(
            "engine",
            FAIL if subject.needs_container else WARN,
            found,
            "install docker 20.10 or newer, or start it",
        )


def storage(subject: Subject) -> Iterator[DoctorCheck]:
    """Free space in the engine's image storage, compared with the size of the missing images."""
    name, engine = "engine storage", subject.engine
    if engine is None:
        yield DoctorCheck(name, SKIP, "no engine answers")
        return
    folder = storage_folder(engine, subject.cache_dir)
    if folder is None:
        yield DoctorCheck(
            name, SKIP, f"{engine.name} does not report the folder of its images on this machine"
        )
        return
    free = subject.free_bytes(folder)
    missing = [base for base in _bases(subject) if not present_image(engine, base, subject.cache_dir)]
    needs = {base.name: disk_budget(base, PLATFORM) for base in missing}
    largest = max((size for size in needs.values() if size is not None), default=None)
    found = f"{gigabytes(free)} free in {folder}"
    if largest is None:
        yield DoctorCheck(name, OK, f"{found}; all base images are present" if not missing else found)
    elif free >= largest:
        yield DoctorCheck(name, OK, f"{found}; the largest missing base image needs {gigabytes(largest)}")
    else:
        short = [base for base, size in needs.items() if size is not None and size > free]
        found += f"; {', '.join(short)}: up to {gigabytes(largest)} needed"
        fix = f"free {gigabytes(largest - free)}, or move the engine's storage to a larger disk"
        yield DoctorCheck(name, FAIL if subject.needs_container else WARN, found, fix)


def storage_folder(engine: Engine, cache: Path) -> Path | None:
    """The folder of the images of ``engine``; None if it is unknown or not on this machine."""
    if engine.name in SUFFIXES:
        return next(path for path in (cache.absolute(), *cache.absolute().parents) if path.is_dir())
    fields = {"docker": ("DockerRootDir",), "podman": ("store", "graphRoot")}.get(engine.name)
    if fields is None:
        return None
    template = "{{json .}}" if engine.name == "docker" else "json"
    done = subprocess.run(
        [engine.name, "info", "--format", template],
        env=client_environment(),
        capture_output=True,
        text=True,
        timeout=_ASK_S,
        check=False,
    )
    value = json.loads(done.stdout) if done.returncode == 0 else {}
    for field in fields:
        value = value.get(field, {})
    folder = Path(value) if isinstance(value, str) and value else None
    return folder if folder is not None and folder.is_absolute() and folder.is_dir() else None


def gpu_access(subject: Subject) -> Iterator[DoctorCheck]:
    """The engine's own account of GPUs. Only a started container proves it (see start.py)."""
    name, engine = "engine GPU", subject.engine
    if engine is None:
        yield DoctorCheck(name, SKIP, "no engine answers")
        return
    reason = str(getattr(engine, "gpu_reason", ""))
    if engine.gpu_by is not None:
        yield DoctorCheck(name, OK, f"{engine.name} gives containers GPUs by {engine.gpu_by}: {reason}")
    elif not subject.machine.gpus:
        yield DoctorCheck(name, SKIP, f"this machine has no GPU, and {engine.name} has no access to GPUs")
    else:
        problem, _, fix = reason.partition(": ")
        yield DoctorCheck(name, FAIL, problem, fix)


def preflight(subject: Subject) -> Iterator[DoctorCheck]:
    """Whether each framework's base image suits this machine's platform, GPUs and driver."""
    machine = subject.machine
    gpus = [GpuFacts(gpu.name, gpu.capability or None) for gpu in machine.gpus]
    for framework in subject.chosen_frameworks:
        base = base_for(rules.LATEST, framework)
        # Free space is checked by `storage`.
        refused = refusal(base, platform=PLATFORM, gpus=gpus, driver=machine.driver, free_bytes=None)
        name = f"image {framework}"
        if refused is not None:
            problem, _, fix = refused.rpartition(": ")
            yield DoctorCheck(name, FAIL if subject.frameworks else WARN, problem, fix)
            continue
        fits = "suits the GPUs and their driver" if gpus else "not compared with a GPU: there is none"
        reason = base.why_not_closed
        closed = "ready for closed" if reason is None else f"not ready for closed: {reason}"
        yield DoctorCheck(name, OK, f"{base.tagged}, {fits}; {closed}")


def present_image(engine: Engine, base: Base, cache: Path) -> str | None:
    """The id or path of the unmodified ``base`` in ``engine``; None if it is not present."""
    if isinstance(engine, DockerEngine):
        found = local_base(engine, base, PLATFORM)
        return None if found is None else found.id
    if engine.name not in SUFFIXES:
        image = engine.image(base.reference)
        return None if image is None else image.id
    digest = base.platform(PLATFORM).manifest_digest or base.digest
    path = image_file(cache.absolute(), engine.name, base.name, digest) if digest else None
    return str(path) if path is not None and path.is_file() else None


def _bases(subject: Subject) -> list[Base]:
    return [base_for(rules.LATEST, framework) for framework in subject.chosen_frameworks]
