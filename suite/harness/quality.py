"""A repeat in quality mode: the worker trains and predicts, the harness scores the predictions."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic_ns
from typing import Any

from suite.datasets.errors import ScoringError
from suite.datasets.scores import score
from suite.harness.repeat import (
    OPTIONAL,
    Completed,
    explain_nulls,
    log_clock,
    log_counters,
    on_run_clock,
    start_repeat,
    window_times,
)
from suite.harness.session import SETUP_S, STEPS_S, Session
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.rules.targets import reaches
from suite.telemetry.counters import CounterReader

MEASURED = ("import_ns", "setup_ns", "cpu_time_ns", "input_wait_ns", "memory", "dtypes", "modules_digest")
NOT_MEASURED = (
    *("timestamp_kind", "warmup_ns", "compile_ns", "soak_ns"),
    *("soak_steps", "tail_steps", "storage_bytes", "threads"),
)


def run_quality(session: Session, repeat: int) -> Completed:
    """Train to the target of the rules, and log every evaluation and the end of the repeat."""
    with ExitStack() as stack:
        worker = start_repeat(session, repeat, stack)
        worker.expect("first_touch", SETUP_S)
        counters = CounterReader(session.pid, session.devices)
        opening = counters.read()
        opened = monotonic_ns()
        worker.command("go")
        reached_ns: int | None = None
        while True:
            event, _ = _next(worker, STEPS_S)
            if event["event"] == "repeat_end":
                break
            reached, now = _evaluate(session, repeat, event, opened)
            reached_ns = now - opened if reached and reached_ns is None else reached_ns
            worker.command("verdict", stop=reached)
        closed = monotonic_ns()
        closing = counters.read()
        worker.expect("done", SETUP_S)
    log_counters(session, repeat, "window_open", opened, opening)
    log_counters(session, repeat, "window_close", closed, closing)
    log_clock(session, repeat, "repeat_end")
    _log_end(session, repeat, event, (opened, closed))
    window = event["window"]
    return Completed(window["close_ns"] - window["open_ns"], event["steps"], reached_ns)


def _next(worker: WorkerProcess, timeout_s: float) -> tuple[dict[str, Any], int]:
    while True:
        event, received = worker.receive(timeout_s)
        if event["event"] in ("evaluation", "repeat_end"):
            return event, received
        if event["event"] != "phase":
            raise WorkerFailure("protocol", worker.phase, f"expected an evaluation, found {event['event']}")


def _evaluate(session: Session, repeat: int, event: dict[str, Any], opened: int) -> tuple[bool, int]:
    plan = session.plan
    predictions = session.scratch(repeat) / str(event["file"]).replace("/", "_")
    try:
        scored = score(plan.key.workload, session.run.resources.dataset.folder, predictions, plan.key.scale)
    except ScoringError as error:
        raise WorkerFailure("protocol", "evaluate", f"the predictions cannot be scored: {error}") from error
    now = monotonic_ns()
    predictions.unlink()
    reached = reaches(scored.value, {"target": plan.target, "better": plan.better})
    data = {
        "epoch": event["epoch"],
        "step": event["step"],
        "metric": scored.metric,
        "value": float(scored.value).hex(),
        "target": plan.target,
        "reached": reached,
        "elapsed_ns": now - opened,
        "predictions_digest": event["digest"],
        "mean_loss": event["mean_loss"],
        "units": event["units"],
    }
    reasons = explain_nulls(data, "the steps of this workload hold different amounts of work")
    session.log.event("evaluation", {**data, "reasons": reasons}, repeat)
    session.progress.evaluated(scored.metric, scored.value, plan.target, (now - opened) / 1e9)
    return reached, now


def _log_end(session: Session, repeat: int, end: dict[str, Any], receipt: tuple[int, int]) -> None:
    """Log the same fields as in throughput mode; fields that quality mode does not measure are null."""
    window, why = end["window"], "not measured in quality mode"
    report = {
        "rank": 0,
        "node": 0,
        "window": {**on_run_clock(session, window), "collect_ns": window["collect_ns"]},
        "parameters": {"initial": end["initial"], "step_10": None, "final": end["final"]},
        **{name: end[name] for name in (*MEASURED, *(name for name in OPTIONAL if name in end))},
        **dict.fromkeys(NOT_MEASURED),
    }
    session.log.event("rank_end", {**report, "reasons": explain_nulls(report, why)}, repeat)
    data = {
        "outcome": "completed",
        **window_times(session, window, receipt),
        "units": None,
        "steps": end["steps"],
    }
    session.log.event("repeat_end", {**data, "reasons": explain_nulls(data, why)}, repeat)
