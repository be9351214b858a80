"""Which container engines answer, where they keep images, and how they hand out GPUs."""

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
from suite.doctor.model import FAIL, OK, SKIP, WARN, Check, Look, Subject, gigabytes
from suite.plan.images import PLATFORM, image_file

_ASK_S = 20.0


def looks(runtime: str) -> list[tuple[str, Look]]:
    """The checks of engines for the word ``runtime``, by name."""
    names = ORDER if runtime == "auto" else (runtime,) if runtime in ORDER else ()
    answers = [(f"engine {name}", partial(_answers, name)) for name in names]
    return [*answers, ("engine", _chosen), ("engine storage", storage), ("engine GPU", hands_out_gpus)]


def _answers(name: str, subject: Subject) -> Iterator[Check]:
    check = f"engine {name}"
    found = find(name, need_gpu=False)
    if found.engine is not None:
        subject.engines[name] = found.engine
        root = "without root" if found.engine.rootless else "as root"
        yield Check(check, OK, f"{name} {found.engine.version} answers, {root}")
        return
    # "docker: <what is wrong>: <the fix>"
    what, _, fix = "; ".join(found.tried).removeprefix(f"{name}: ").rpartition(": ")
    if subject.runtime == name:
        yield Check(check, FAIL, what, fix)
    elif "is not on PATH" in what:
        yield Check(check, SKIP, what)
    else:
        yield Check(check, WARN, what, fix)


def _chosen(subject: Subject) -> Iterator[Check]:
    if subject.runtime == "native":
        yield Check("engine", SKIP, "RUNTIME=native: no container is asked for")
    elif subject.engine is not None:
        yield Check("engine", OK, f"runs in containers take {subject.engine.name}")
    else:
        what = "none answers: runs are native, and closed, images and limits are refused"
        yield Check(
            "engine", FAIL if subject.asked else WARN, what, "install docker 20.10 or newer, or start it"
        )


def storage(subject: Subject) -> Iterator[Check]:
    """What is free where the engine keeps images, against the images that are not here yet."""
    name, engine = "engine storage", subject.engine
    if engine is None:
        yield Check(name, SKIP, "no engine answers")
        return
    folder = storage_folder(engine, subject.cache_dir)
    if folder is None:
        yield Check(name, SKIP, f"{engine.name} does not tell where on this machine it keeps images")
        return
    free = subject.free_bytes(folder)
    missing = [base for base in _bases(subject) if not here(engine, base, subject.cache_dir)]
    needs = {base.name: disk_budget(base, PLATFORM) for base in missing}
    largest = max((size for size in needs.values() if size is not None), default=None)
    found = f"{gigabytes(free)} free in {folder}"
    if largest is None:
        yield Check(name, OK, f"{found}; every base image is here" if not missing else found)
    elif free >= largest:
        yield Check(name, OK, f"{found}; the largest base image to come needs {gigabytes(largest)}")
    else:
        short = [base for base, size in needs.items() if size is not None and size > free]
        found += f"; {', '.join(short)} would need up to {gigabytes(largest)}"
        fix = f"free {gigabytes(largest - free)}, or move the engine's storage to a larger disk"
        yield Check(name, FAIL if subject.asked else WARN, found, fix)


def storage_folder(engine: Engine, cache: Path) -> Path | None:
    """The folder in which ``engine`` keeps its images; None where it does not tell, or it is not here."""
    if engine.name in SUFFIXES:
        return next(place for place in (cache.absolute(), *cache.absolute().parents) if place.is_dir())
    fields = {"docker": ("DockerRootDir",), "podman": ("store", "graphRoot")}[engine.name]
    form = "{{json .}}" if engine.name == "docker" else "json"
    done = subprocess.run(
        [engine.name, "info", "--format", form],
        env=client_environment(),
        capture_output=True,
        text=True,
        timeout=_ASK_S,
        check=False,
    )
    told = json.loads(done.stdout) if done.returncode == 0 else {}
    for field in fields:
        told = told.get(field, {})
    folder = Path(told) if isinstance(told, str) and told else None
    return folder if folder is not None and folder.is_absolute() and folder.is_dir() else None


def hands_out_gpus(subject: Subject) -> Iterator[Check]:
    """What the engine says of GPUs. Only a started container proves it (see start.py)."""
    name, engine = "engine GPU", subject.engine
    if engine is None:
        yield Check(name, SKIP, "no engine answers")
        return
    reason = str(getattr(engine, "gpu_reason", ""))
    if engine.gpu_by is not None:
        yield Check(name, OK, f"{engine.name} hands out GPUs by {engine.gpu_by}: {reason}")
    elif not subject.machine.gpus:
        yield Check(name, SKIP, f"no GPU here, and {engine.name} would hand out none")
    else:
        what, _, fix = reason.partition(": ")
        yield Check(name, FAIL, what, fix)


def preflight(subject: Subject) -> Iterator[Check]:
    """Each framework's current base image against this machine's platform, GPUs and driver."""
    machine = subject.machine
    gpus = [GpuFacts(gpu.name, gpu.capability or None) for gpu in machine.gpus]
    for framework in subject.chosen_frameworks:
        base = base_for(rules.LATEST, framework)
        # No figure of the disk: that is the storage's check.
        refused = refusal(base, platform=PLATFORM, gpus=gpus, driver=machine.driver, free_bytes=None)
        name = f"image {framework}"
        if refused is not None:
            what, _, fix = refused.rpartition(": ")
            yield Check(name, FAIL if subject.frameworks else WARN, what, fix)
            continue
        fits = "fits these GPUs and their driver" if gpus else "not compared with a GPU: there is none"
        reason = base.why_not_closed
        closed = "ready for closed" if reason is None else f"not for closed: {reason}"
        yield Check(name, OK, f"{base.tagged}, {fits}; {closed}")


def here(engine: Engine, base: Base, cache: Path) -> str | None:
    """What ``engine`` starts for the unmodified ``base``, None where it does not have it."""
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
