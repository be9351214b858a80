"""Starts a container as a run starts one, and compares what a worker finds inside with what was asked for.

A listed GPU does not prove that injecting it works, nor an accepted flag that the kernel holds it: only this
does. The image is one that is here; nothing is ever pulled.
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
from suite.doctor.engines import here
from suite.doctor.inside import Asked, judge
from suite.doctor.model import FAIL, OK, SKIP, Check, Subject
from suite.harness.scratch import Scratch

TOTAL_S = 80.0
_EACH_S = 25.0
_SMALL = Limits(cpus="1", memory_bytes=1 << 30, shm_bytes=1 << 28)
_REPEAT = 0


@dataclass(frozen=True, slots=True)
class ImageToStart:
    """An image that is here: its name, what the engine starts, and the code to mount where it holds none."""

    name: str
    start: str
    code: Path | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the probe reported between two readings of our monotonic clock (ns), and the attestation."""

    report: dict[str, Any]
    before_ns: int
    after_ns: int
    attested: Attestation


class _Probing:
    """An engine whose workers answer the doctor's question and do nothing else."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def command(self, inputs: ContainerInputs) -> WorkerCommand:
        """The command of a worker, told to probe."""
        return self._engine.command(replace(inputs, module="suite.worker.probe"))


def start(subject: Subject) -> Iterator[Check]:
    """A container of an image that is here, with the GPUs of this machine and small limits."""
    engine = subject.engine
    if engine is None or not subject.start:
        yield Check("start", SKIP, "--no-start" if engine is not None else "no engine answers")
        return
    image = image_here(engine, subject)
    if image is None:
        yield Check(
            "start", SKIP, "no image of the suite is here, and none is pulled unasked", _command(subject)
        )
        return
    yield from started(subject, engine, image)


def started(subject: Subject, engine: Engine, image: ImageToStart) -> Iterator[Check]:
    """Start ``image``; what is wrong with it, or what it found inside. Nothing of it is left behind."""
    gpus = tuple(gpu.uuid for gpu in subject.machine.gpus) if engine.gpu_by else ()
    cannot = engine.runtime.not_enforced
    limits = replace(_SMALL, **{name: None for name in _SMALL.names() if name in cannot})
    scratch = Scratch(subject.cache_dir.absolute())
    subject.undo.append(scratch.remove)
    workers = ContainerWorkers(
        engine=cast("Engine", _Probing(engine)),
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
        answer = ask(workers, scratch)
    except (EngineProblem, subprocess.TimeoutExpired) as problem:
        yield Check("start", FAIL, f"{image.name} in {engine.name}: {_told(problem)}", _fix(engine, gpus))
        return
    finally:
        workers.remove(_REPEAT)
        scratch.remove()
    with_gpus = f"with {len(gpus)} GPU" if gpus else "without a GPU"
    found = (
        f"{image.name} in {engine.name} {with_gpus}, started and ended in {time.monotonic() - began:.1f} s"
    )
    yield Check("start", OK, found)
    asked = Asked(limits, len(gpus), image.code is None, cannot)
    yield from judge(answer.report, answer.attested, (answer.before_ns, answer.after_ns), asked)


def image_here(engine: Engine, subject: Subject) -> ImageToStart | None:
    """An image that can be started: a pair's, else a base of the lock, else a stand-in of practice."""
    if isinstance(engine, DockerEngine):
        for workload, framework in subject.pairs:
            tag = tag_of(workload, framework)
            found = engine.image(tag)
            if found is not None:
                return ImageToStart(tag, found.id, None)
    for version in (rules.LATEST, "practice"):
        for framework in subject.chosen_frameworks:
            base = base_for(version, framework)
            started = here(engine, base, subject.cache_dir)
            if started is not None:
                return ImageToStart(base.tagged, started, PROJECT)
    return None


def ask(workers: ContainerWorkers, scratch: Scratch) -> Answer:
    """Start the probe, attest it while it waits, and hear its answer.

    Raises EngineProblem, with what the client said, where it does not start or not answer;
    subprocess.TimeoutExpired where it does not end.
    """
    data = scratch.folder("data")
    data.chmod(0o777)  # so that only its read-only mount keeps the probe from writing there
    command = workers.command(_REPEAT, scratch.folder("worker"), data)
    client = subprocess.Popen(
        command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=command.directory,
        env=dict(command.environment),
        start_new_session=True,  # Ctrl-C is for us: the end of stdin is for it
    )
    try:
        try:
            attested = workers.engine.attest(workers.name(_REPEAT), client.pid, _EACH_S)
        except EngineProblem as problem:
            client.kill()
            raise EngineProblem(_last_words(client) or str(problem)) from problem
        before = time.monotonic_ns()
        out, err = client.communicate(b"\n", timeout=_EACH_S)
        after = time.monotonic_ns()
    finally:
        if client.poll() is None:
            client.kill()
            client.communicate()
    try:
        return Answer(json.loads(out.splitlines()[-1]), before, after, attested)
    except (ValueError, IndexError):
        words = err.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise EngineProblem(
            f"the probe did not answer (exit code {client.returncode}): {words[-1]}"
        ) from None


def _last_words(client: subprocess.Popen[bytes]) -> str:
    """What the client complained of; clients end with an advice to read their help."""
    _, err = client.communicate(timeout=_EACH_S)
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "--help" not in line), "")


def _told(problem: Exception) -> str:
    if isinstance(problem, subprocess.TimeoutExpired):
        return f"started, and did not end in {problem.timeout:.0f} s"
    return str(problem)


def _fix(engine: Engine, gpus: tuple[str, ...]) -> str:
    if gpus and engine.gpu_by == "cdi":
        return "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, then run this again"
    if gpus:
        return "sudo nvidia-ctk runtime configure --runtime=docker, restart docker, then run this again"
    return (
        f"fix what {engine.name} says; `{engine.name} run --rm IMAGE true` shows whether it starts anything"
    )


def _command(subject: Subject) -> str:
    workload, framework = subject.pairs[0]
    if subject.engine is None or subject.engine.name == "docker":
        return f"make image WORKLOAD={workload} FRAMEWORK={framework} FETCH=1"
    return f"make run WORKLOAD={workload} FRAMEWORK={framework} RUNTIME={subject.engine.name} FETCH=1"
