"""Execute a run: its repeats in fresh processes, and one log for every outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from suite.contract import BENCHMARK, CONVERSION
from suite.datasets.errors import StorageError
from suite.datasets.evict import warm
from suite.harness.fingerprint import job_of_fingerprint, take_fingerprint
from suite.harness.interrupts import Interrupted, Interrupts
from suite.harness.log import LogError, LogWriter
from suite.harness.neighbours import announced
from suite.harness.progress import Progress
from suite.harness.quality import run_quality
from suite.harness.remote_node import RemoteNode
from suite.harness.repeat import Completed, run_throughput
from suite.harness.session import Session
from suite.harness.worker_process import WorkerFailure
from suite.log.canonical import NotCanonicalError
from suite.log.claims import claims_of
from suite.log.safe import safe
from suite.plan.plan import Plan
from suite.plan.prepared import PreparedRun
from suite.telemetry.facts import machine_facts
from suite.telemetry.nvml import Devices
from suite.telemetry.storage import storage_facts
from suite.workloads import specification

EXIT_CODES = {
    "crashed": 20,
    "out_of_memory": 21,
    "killed": 22,
    "timed_out": 23,
    "protocol": 24,
    "non_finite_loss": 25,
    "dataset": 12,
    "environment": 13,
    "io": 15,
    "interrupted": 130,
}
_LONGEST_MESSAGE = 500  # characters in the log, by its schema


@dataclass(frozen=True, slots=True)
class Outcome:
    """The folder of the result, and the exit code: 0, or that of a typed failure with its message."""

    folder: Path
    exit_code: int
    message: str


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A prepared run; ``name`` is the prefix of its progress lines."""

    prepared: PreparedRun
    name: str = ""
    others: Sequence[RemoteNode] = ()  # the nodes of the run but this one


def execute(prepared: PreparedRun, *, others: Sequence[RemoteNode] = (), quiet: bool = False) -> Outcome:
    """Execute ``prepared`` on this node and ``others``. A LogError before repeat 0 leaves nothing behind."""
    (outcome,) = execute_interleaved([NamedRun(prepared, others=others)], quiet=quiet)
    return outcome


def execute_interleaved(runs: Sequence[NamedRun], *, quiet: bool = False) -> list[Outcome]:
    """Execute several runs interleaved, in the order of :func:`interleaved_order`; one outcome for each.

    Each run writes the log that it would write alone. If one fails, the others end as interrupted: they have
    nothing to be compared with. A LogError before repeat 0 leaves nothing behind.
    """
    with Interrupts() as interrupts, ExitStack() as stack:
        sessions: list[Session] = []
        neighbours = stack.enter_context(announced(runs[0].prepared.plan.run_id))
        for run in runs:
            try:
                alone = len(runs) == 1 and not run.others
                session = _open_session(run, interrupts, quiet, alone and _may_start_early(run.prepared.plan))
                sessions.append(stack.enter_context(session))
            except LogError:
                for made in sessions:
                    made.log.discard()
                raise
        if neighbours:
            sessions[0].progress.write(
                f"warning: the suite measures {' and '.join(neighbours)} on this machine too: each run slows "
                "the other down; stop one of them and run it again alone"
            )
        return _run_repeats(sessions, interleaved_order([run.prepared.plan.repeats for run in runs]))


def interleaved_order(repeats: Sequence[int]) -> list[int]:
    """The index of the run for every repeat: A B, B A, A B … for two, so that drift favours neither.

    ``repeats`` are the repeats of each run; a run with more repeats than the others continues alone.
    """
    order = []
    for round_ in range(max(repeats)):
        due = [at for at, count in enumerate(repeats) if round_ < count]
        order += due if round_ % 2 == 0 else due[::-1]
    return order


@contextmanager
def _open_session(
    run: NamedRun, interrupts: Interrupts, quiet: bool, starts_early: bool
) -> Iterator[Session]:
    """The session of one run, with its log opened; on exit the log is closed."""
    prepared, plan = run.prepared, run.prepared.plan
    dataset = prepared.resources.dataset
    devices = Devices(plan.device_ids)
    facts, reasons = node_facts(plan)
    if plan.kind == CONVERSION:
        paths = {"source": dataset.folder / "train", "destination": plan.scratch_root}
        storage, unknown = storage_facts(paths)
        facts = {**facts, "storage": storage}
        reasons |= {f"storage.{path}": why for path, why in unknown.items()}
    folder = plan.settings.results_dir / plan.run_id
    if plan.key.cache == "warm":
        warm(dataset.paths)
    session = Session(
        prepared,
        LogWriter(folder, prepared.header, interrupts.held, prepared.files),
        {"facts": facts, "reasons": reasons},
        Progress(
            plan.repeats,
            plan.measured_steps,
            quiet=quiet,
            name=run.name,
            unit=specification(plan.key.workload).UNIT,
        ),
        folder.with_name(plan.run_id + ".debug"),
        devices,
        interrupts,
        run.others,
        starts_early=starts_early,
    )
    try:
        yield session
    finally:
        session.progress.close()
        session.log.abandon()
        session.clean()


def node_facts(plan: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts of this machine for the ``env`` event of side ``outside``, and the reasons of their nulls."""
    facts, reasons = machine_facts(plan.device_ids)
    return _with_visible(facts, reasons, plan.found_visible)


def _with_visible(
    facts: dict[str, Any], reasons: dict[str, str], visible: str | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts with the number of entries in CUDA_VISIBLE_DEVICES; its UUIDs would identify the machine."""
    name = "visible_devices_set"
    if visible is None:
        return {**facts, name: None}, {**reasons, name: "CUDA_VISIBLE_DEVICES is not set"}
    return {**facts, name: len([entry for entry in visible.split(",") if entry.strip()])}, reasons


def _run_repeats(sessions: Sequence[Session], order: Sequence[int]) -> list[Outcome]:
    """Run every repeat in ``order``; a failure ends all runs. Returns one outcome per session."""
    done: list[list[Completed]] = [[] for _ in sessions]
    interrupts, at = sessions[0].interrupts, order[0]
    failed: Outcome | None = None
    try:
        try:
            interrupts.release()
            for at in order:
                done[at].append(_run_repeat(sessions[at], len(done[at])))
        finally:
            interrupts.stop()  # a signal must not interrupt the end of the log
    except (Exception, Interrupted) as error:
        failed = _handle_failure(sessions[at], error)
        if failed is None:
            raise
    return [
        failed if failed is not None and number == at else _close_log(session, part)
        for number, (session, part) in enumerate(zip(sessions, done, strict=True))
    ]


def _handle_failure(session: Session, error: BaseException) -> Outcome | None:
    """Log why the run in ``session`` ended; None for a bug of the suite, which the caller raises."""
    if isinstance(error, WorkerFailure):
        error.phase = error.phase or session.phase
        return _abort(session, error)
    if isinstance(error, Interrupted):
        return _abort(session, _interruption(session, error.number))
    if isinstance(error, LogError):
        return _log_failure(session, f"repeat {session.repeat}", error)
    if isinstance(error, OSError | StorageError):
        message = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        return _abort(session, WorkerFailure("io", session.phase, f"the harness: {message}"))
    if isinstance(error, NotCanonicalError):
        return _abort(session, WorkerFailure("protocol", session.phase, f"the report of the worker: {error}"))
    message = f"the harness failed: {type(error).__name__}"
    _abort(session, WorkerFailure("crashed", session.phase, message))
    return None


def _close_log(session: Session, done: list[Completed]) -> Outcome:
    """Close the log of a run that did not fail: completed, or aborted because the other run ended."""
    if len(done) == session.plan.repeats:
        return _complete(session, done)
    session.begin(len(done))
    return _abort(
        session, WorkerFailure("interrupted", session.phase, "the other run of this comparison ended")
    )


def _run_repeat(session: Session, repeat: int) -> Completed:
    session.begin(repeat)
    fingerprint = repeat == 0 and session.plan.fingerprint
    if session.plan.settings.mode == "quality":
        done = run_quality(session, repeat)
    else:
        done = run_throughput(session, repeat, partial(_start_next, session, repeat))
    session.progress.finished(repeat, _describe(session.plan, done), done.window_ns / 1e9)
    if fingerprint:
        take_fingerprint(session)
        session.progress.ended()
    if repeat == 0:
        session.keep_compiled()  # also the kernels of the fingerprint
    return done


def _may_start_early(plan: Plan) -> bool:
    """Whether workers may import their framework beside the set-up of the repeat before.

    Only where a GPU is measured: importing takes time of processors. Not under apptainer and enroot: Slurm
    may start their workers, and then a second one waits until the first has ended.
    """
    runtime = plan.runtime in ("native", "docker", "podman")
    return runtime and plan.kind == BENCHMARK and plan.settings.mode == "throughput" and bool(plan.device_ids)


def _start_next(session: Session, repeat: int) -> None:
    """Start the workers that follow ``repeat`` early, where the run allows it."""
    if not session.starts_early:
        return
    if repeat == 0 and session.plan.fingerprint:
        session.start_early(*job_of_fingerprint(session))
    if repeat + 1 < session.plan.repeats:
        session.start_early(repeat + 1, session.job(repeat + 1))


def _complete(session: Session, done: list[Completed]) -> Outcome:
    windows, units = [part.window_ns for part in done], [part.units for part in done]
    times = [part.time_to_quality_ns for part in done]
    claims, reasons = claims_of(session.plan.settings.mode, windows, units, times)
    try:
        return Outcome(session.log.close("completed", claims, reasons), 0, "")
    except LogError as error:
        return _log_failure(session, "the end", error)


def _log_failure(session: Session, where: str, error: LogError) -> Outcome:
    message = f"the log could not be written in {where}: {error.strerror}"
    return Outcome(session.log.partial, EXIT_CODES["io"], message)


def _interruption(session: Session, number: int) -> WorkerFailure:
    failure = WorkerFailure("interrupted", session.phase, "the run was interrupted from outside")
    failure.signal = number
    return failure


def logged_message(message: str) -> str:
    """``message`` as the log has it: at most 500 printable ASCII characters."""
    return safe(message, _LONGEST_MESSAGE).encode("ascii", "replace").decode()[:_LONGEST_MESSAGE]


def _abort(session: Session, failure: WorkerFailure) -> Outcome:
    reasons = {}
    if failure.exit_code is None:
        reasons["exit_code"] = "the worker did not exit by itself"
    if failure.signal is None:
        reasons["signal"] = "no signal ended the worker"
    event = {
        "code": failure.code,
        "phase": failure.phase,
        "message": logged_message(failure.message),
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "attempt": session.run.attempt,
        "reasons": reasons,
    }
    event |= {
        name: number
        for name, number in (("rank", failure.rank), ("node", failure.node))
        if number is not None
    }
    message = f"{failure.code} in repeat {session.repeat}, phase {failure.phase}: {failure.message}"
    out_of_memory = failure.code == "out_of_memory"
    outcome = "out_of_memory" if out_of_memory else "aborted"
    why = {
        "claims": "a run that ran out of memory has no score" if out_of_memory else "the run did not complete"
    }
    folder = session.log.partial
    try:
        session.log.event("abort", event, session.repeat if session.started else None)
        folder = session.log.close(outcome, None, why, rename=out_of_memory)
    except LogError as error:
        message += f"; the log could not be written: {error.strerror}"
    return Outcome(folder, EXIT_CODES[failure.code], message)


def _describe(plan: Plan, part: Completed) -> str:
    seconds = part.window_ns / 1e9
    if plan.settings.mode == "quality":
        reached = part.time_to_quality_ns
        return f"target {'not reached' if reached is None else f'reached after {reached / 1e9:.1f} s'}"
    rate = part.units / seconds
    return f"{rate:,.0f} {specification(plan.key.workload).UNIT}s/s, window {seconds:.3f} s"
