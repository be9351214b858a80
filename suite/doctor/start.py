"""Start a container as a run does, and compare a probe's report from inside with the request.

Only this proves that a container has a listed GPU and that the kernel enforces an accepted flag. The image is
one that is present; nothing is pulled.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from suite import rules
from suite.containers.engines.attestation import Attestation, Engine, EngineProblem
from suite.containers.engines.container import ContainerInputs, Limits
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.native import PROJECT, WorkerCommand
from suite.containers.engines.workers import ContainerWorkers, worker_user
from suite.containers.images.build import tag_of
from suite.containers.images.lock import base_for
from suite.doctor.engines import present_image
from suite.doctor.inside import ContainerRequest, container_checks
from suite.doctor.model import FAIL, OK, SKIP, DoctorCheck, Subject
from suite.harness.scratch import Scratch

TOTAL_S = 80.0
_EACH_S = 25.0
_SMALL = Limits(cpus="1", memory_bytes=1 << 30, shm_bytes=1 << 28)
_REPEAT = 0


@dataclass(frozen=True, slots=True)
class ImageToStart:
    """A present image: its name, its id or path, and the code to mount (None: the image contains it)."""

    name: str
    start: str
    code: Path | None


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The probe's report, readings of CLOCK_MONOTONIC (ns) before and after it, and the attestation."""

    report: dict[str, Any]
    before_ns: int
    after_ns: int
    attested: Attestation


class _ProbeEngine:
    """An engine that starts the probe instead of a worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command that starts the probe."""
        return self._engine.command(replace(inputs, module="suite.worker.probe"))


def start(subject: Subject) -> Iterator[DoctorCheck]:
    """Start a container of a present image, with the GPUs of this machine and small limits."""
    engine = subject.engine
    if engine is None or not subject.start:
        yield DoctorCheck("start", SKIP, "--no-start" if engine is not None else "no engine answers")
        return
    image = image_here(engine, subject)
    if image is None:
        yield DoctorCheck(
            "start", SKIP, "no image of the suite is present, and the doctor pulls none", _command(subject)
        )
        return
    yield from started(subject, engine, image)


def started(subject: Subject, engine: Engine, image: ImageToStart) -> Iterator[DoctorCheck]:
    """Start ``image`` and yield the checks of its probe; the container is removed."""
    gpus = tuple(gpu.uuid for gpu in subject.machine.gpus) if engine.gpu_by else ()
    cannot = engine.runtime.not_enforced
    limits = replace(_SMALL, **{name: None for name in _SMALL.names() if name in cannot})
    scratch = Scratch(subject.cache_dir.absolute())
    subject.undo.append(scratch.remove)
    workers = ContainerWorkers(
        engine=cast("Engine", _ProbeEngine(engine)),
        image=image.start,
        run_id=f"doctor-{secrets.token_hex(4)}",
        threads=1,
        wait_policy="passive",
        devices=gpus,
        limits=limits,
        code=image.code,
        user=worker_user(),
    )
    subject.undo.append(lambda: workers.remove(_REPEAT))
    began = time.monotonic()
    try:
        answer = run_probe(workers, scratch)
    except (EngineProblem, subprocess.TimeoutExpired) as problem:
        found = f"{image.name} in {engine.name}: {_message(problem)}"
        yield DoctorCheck("start", FAIL, found, _fix(engine, gpus))
        return
    finally:
        workers.remove(_REPEAT)
        scratch.remove()
    with_gpus = f"with {len(gpus)} GPU" if gpus else "without a GPU"
    found = (
        f"{image.name} in {engine.name} {with_gpus}, started and ended in {time.monotonic() - began:.1f} s"
    )
    yield DoctorCheck("start", OK, found)
    request = ContainerRequest(limits, len(gpus), image.code is None, cannot)
    yield from container_checks(answer.report, answer.attested, (answer.before_ns, answer.after_ns), request)


def image_here(engine: Engine, subject: Subject) -> ImageToStart | None:
    """A present image: of a pair, else a base of the lock, else a stand-in of the practice rules."""
    if isinstance(engine, DockerEngine):
        for workload, framework in subject.pairs:
            tag = tag_of(workload, framework)
            pair_image = engine.image(tag)
            if pair_image is not None:
                return ImageToStart(tag, pair_image.id, None)
    for version in (rules.LATEST, "practice"):
        for framework in subject.chosen_frameworks:
            base = base_for(version, framework)
            found = present_image(engine, base, subject.cache_dir)
            if found is not None:
                return ImageToStart(base.tagged, found, PROJECT)
    return None


def run_probe(workers: ContainerWorkers, scratch: Scratch) -> ProbeAnswer:
    """Start the probe, attest it while it waits, and read its report.

    Raises EngineProblem with the client's message if the probe does not start or not answer;
    subprocess.TimeoutExpired if it does not end.
    """
    data = scratch.folder("data")
    data.chmod(0o777)  # only the read-only mount prevents the probe from writing there
    command = workers.command(_REPEAT, scratch.folder("worker"), data)
    client = subprocess.Popen(
        command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=command.directory,
        env=dict(command.environment),
        start_new_session=True,  # Ctrl-C reaches the doctor only, which then closes the probe's stdin
    )
    try:
        try:
            attested = workers.engine.attest(workers.name(_REPEAT), client.pid, _EACH_S)
        except EngineProblem as problem:
            client.kill()
            raise EngineProblem(_last_output(client) or str(problem)) from problem
        before = time.monotonic_ns()
        out, err = client.communicate(b"\n", timeout=_EACH_S)
        after = time.monotonic_ns()
    finally:
        if client.poll() is None:
            client.kill()
            client.communicate()
    try:
        return ProbeAnswer(json.loads(out.splitlines()[-1]), before, after, attested)
    except (ValueError, IndexError):
        lines = err.decode(errors="replace").strip().splitlines() or ["no message"]
        raise EngineProblem(
            f"the probe did not answer (exit code {client.returncode}): {lines[-1]}"
        ) from None


def _last_output(client: subprocess.Popen[bytes]) -> str:
    """The last error line of the client, without the hint to its help page."""
    _, err = client.communicate(timeout=_EACH_S)
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "--help" not in line), "")


def _message(problem: Exception) -> str:
    if isinstance(problem, subprocess.TimeoutExpired):
        return f"started, but did not end in {problem.timeout:.0f} s"
    return str(problem)


def _fix(engine: Engine, gpus: tuple[str, ...]) -> str:
    if gpus and engine.gpu_by == "cdi":
        return "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, then run this again"
    if gpus:
        return "sudo nvidia-ctk runtime configure --runtime=docker, restart docker, then run this again"
    return f"fix the error of {engine.name}; `{engine.name} run --rm IMAGE true` tests it"


def _command(subject: Subject) -> str:
    workload, framework = subject.pairs[0]
    if subject.engine is None or subject.engine.name == "docker":
        return f"make image WORKLOAD={workload} FRAMEWORK={framework} FETCH=1"
    return f"make run WORKLOAD={workload} FRAMEWORK={framework} RUNTIME={subject.engine.name} FETCH=1"
