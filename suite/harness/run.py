"""A run: five repeats in fresh processes, one log, whatever happens on the way."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from suite.datasets.evict import warm
from suite.harness.log import LogError, LogWriter
from suite.harness.progress import Progress
from suite.harness.quality import run_quality
from suite.harness.repeat import Completed, run_throughput
from suite.harness.session import Session
from suite.harness.worker_process import WorkerFailure
from suite.plan.plan import Plan
from suite.record.claims import claims_of
from suite.record.safe import safe
from suite.telemetry.facts import machine_facts
from suite.telemetry.nvml import Devices
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the result lies, and the exit code so far: 0, or that of a typed failure."""

    folder: Path
    exit_code: int
    message: str


class Interrupted(BaseException):
    """SIGINT or SIGTERM reached the harness."""


def execute(plan: Plan, header: dict[str, Any], *, quiet: bool = False) -> Outcome:
    """Run ``plan`` and return where its record lies. LogError before repeat 0 leaves nothing behind."""
    devices = Devices(plan.device_ids)
    facts, reasons = machine_facts(plan.device_ids)
    folder = plan.settings.results_dir / plan.run_id
    log = LogWriter(folder, header)
    session = Session(
        plan,
        log,
        {"facts": facts, "reasons": reasons},
        Progress(plan.repeats, quiet=quiet),
        folder.with_name(plan.run_id + ".debug"),
        devices,
    )
    if plan.key.cache == "warm":
        warm(plan.dataset_files)
    previous = {name: signal.signal(name, _interrupt) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _repeats(session)
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)
        log.abandon()
        session.clean()


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    raise Interrupted(number)


def _repeats(session: Session) -> Outcome:
    plan = session.plan
    done: list[Completed] = []
    run = run_quality if plan.settings.mode == "quality" else run_throughput
    for repeat in range(plan.repeats):
        try:
            done.append(run(session, repeat))
        except WorkerFailure as failure:
            return _abort(session, repeat, failure)
        except Interrupted as stop:
            return _abort(session, repeat, _interruption(session, int(stop.args[0])))
        except LogError as error:
            message = f"the log could not be written in repeat {repeat}: {error.strerror}"
            return Outcome(session.log.partial, EXIT_CODES["io"], message)
        session.progress.finished(repeat, _describe(plan, done[-1]))
    windows, units = [part.window_ns for part in done], [part.units for part in done]
    times = [part.time_to_quality_ns for part in done]
    claims, reasons = claims_of(plan.settings.mode, windows, units, times)
    return Outcome(session.log.close("completed", claims, reasons), 0, "")


def _interruption(session: Session, number: int) -> WorkerFailure:
    phase = session.worker.phase if session.worker else "start"
    failure = WorkerFailure("interrupted", phase, "the run was interrupted from outside")
    failure.signal = number
    return failure


def _abort(session: Session, repeat: int, failure: WorkerFailure) -> Outcome:
    reasons = {}
    if failure.exit_code is None:
        reasons["exit_code"] = "the worker did not exit by itself"
    if failure.signal is None:
        reasons["signal"] = "no signal ended it"
    event = {
        "code": failure.code,
        "phase": failure.phase,
        "message": safe(failure.message)[:500],
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "attempt": session.plan.attempt,
        "reasons": reasons,
    }
    log = session.log
    log.event("abort", event, repeat)
    message = f"{failure.code} in repeat {repeat}, phase {failure.phase}: {failure.message}"
    memory = failure.code == "out_of_memory"
    outcome = "out_of_memory" if memory else "aborted"
    why = {"claims": "a run that ran out of memory has no score" if memory else "the run did not complete"}
    folder = log.close(outcome, None, why, rename=memory)
    return Outcome(folder, EXIT_CODES[failure.code], message)


def _describe(plan: Plan, part: Completed) -> str:
    seconds = part.window_ns / 1e9
    if plan.settings.mode == "quality":
        reached = part.time_to_quality_ns
        return f"target {'not reached' if reached is None else f'reached after {reached / 1e9:.1f} s'}"
    rate = part.units / seconds
    return f"{rate:,.0f} {specification(plan.key.workload).UNIT}s/s, window {seconds:.3f} s"
