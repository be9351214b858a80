"""A repeat in quality mode: the worker trains and predicts, the harness scores the predictions."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic_ns
from typing import Any

from suite.contract import node_of_rank
from suite.datasets.errors import ScoringError
from suite.datasets.scores import score
from suite.harness.repeat import (
    OPTIONAL,
    Completed,
    ahead_of_nodes,
    explain_nulls,
    log_all_counters,
    log_clock,
    log_other_clocks,
    on_run_clock,
    on_this_clock,
    start_repeat,
    window_times,
)
from suite.harness.session import EPOCH_S, SETUP_S, Session
from suite.harness.worker_process import WorkerFailure
from suite.rules.targets import reaches
from suite.telemetry.counters import CounterReader

MEASURED = ("import_ns", "setup_ns", "cpu_time_ns", "input_wait_ns", "memory", "dtypes", "modules_digest")
REASON = "not measured in quality mode"
NOT_MEASURED = (
    *("timestamp_kind", "warmup_ns", "compile_ns", "soak_ns"),
    *("soak_steps", "tail_steps", "storage_bytes", "threads"),
)


def run_quality(session: Session, repeat: int) -> Completed:
    """Train to the target of the rules, and log every evaluation and the end of the repeat."""
    with ExitStack() as stack:
        worker = start_repeat(session, repeat, stack)
        worker.expect_all("first_touch", SETUP_S)
        counters = CounterReader(session.pid, session.devices)
        before = [node.measure_clock()[0] for node in session.others]
        openings = [node.counters() for node in session.others]
        opening = counters.read()
        opened = monotonic_ns()
        worker.command("go")
        reached_ns: int | None = None
        for _ in range(session.plan.max_epochs):
            (evaluation, *_), _ = worker.expect_all("evaluation", EPOCH_S)
            reached, now = _evaluate(session, repeat, evaluation, opened)
            worker.command("verdict", stop=reached)
            if reached:
                reached_ns = now - opened
                break
        ends, closed = worker.expect_all("repeat_end", SETUP_S)
        closing = counters.read()
        closings = [node.counters() for node in session.others]
        worker.expect_all("done", SETUP_S)
    log_clock(session, repeat, "repeat_end")
    after = log_other_clocks(session, repeat, "repeat_end")
    ahead = ahead_of_nodes(before, after)
    log_all_counters(session, repeat, "window_open", [(opened, *opening), *openings], ahead)
    log_all_counters(session, repeat, "window_close", [(closed, *closing), *closings], ahead)
    for rank, end in enumerate(ends):
        node = node_of_rank(rank, len(ahead), len(ends))
        _log_rank_end(session, repeat, rank, end, node, ahead[node])
    _log_repeat_end(session, repeat, ends[0], (opened, closed))
    window = ends[0]["timed"]
    return Completed(window["close_ns"] - window["open_ns"], ends[0]["steps"], reached_ns)


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


def _log_rank_end(
    session: Session, repeat: int, rank: int, end: dict[str, Any], node: int, ahead: int
) -> None:
    """Log the same fields as in throughput mode; fields that quality mode does not measure are null."""
    window = on_this_clock(end["window"], ahead)
    report = {
        "rank": rank,
        "node": node,
        "window": {**on_run_clock(session, window), "collect_ns": window["collect_ns"]},
        "parameters": {"initial": end["initial"], "step_10": None, "final": end["final"]},
        **{name: end[name] for name in (*MEASURED, *(name for name in OPTIONAL if name in end))},
        **dict.fromkeys(NOT_MEASURED),
    }
    session.log.event("rank_end", {**report, "reasons": explain_nulls(report, REASON)}, repeat)


def _log_repeat_end(session: Session, repeat: int, end: dict[str, Any], receipt: tuple[int, int]) -> None:
    data = {
        "outcome": "completed",
        **window_times(session, end["timed"], receipt),
        "units": None,
        "steps": end["steps"],
    }
    session.log.event("repeat_end", {**data, "reasons": explain_nulls(data, REASON)}, repeat)
