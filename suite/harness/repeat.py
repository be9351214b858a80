"""One repeat: a fresh worker from set-up to report, and everything about it written to the log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Any

from suite.containers.engines.attestation import Attestation, EngineProblem
from suite.contract import CONVERSION, MEASURED_STEPS, STEPS, WARMUP_STEPS, ConversionKey, Key
from suite.harness.session import Session
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.log.nulls import null_paths
from suite.telemetry.clocks import clock_triple
from suite.telemetry.counters import Probe
from suite.telemetry.load import machine_load
from suite.telemetry.sampler import Sample, Sampler

REPORTED = (  # fields of the worker's report that go into the log as they are
    *(
        "timestamp_kind",
        "warmup_ns",
        "import_ns",
        "setup_ns",
        "compile_ns",
        "soak_ns",
        "soak_steps",
        "tail_steps",
    ),
    *("input_wait_ns", "cpu_time_ns", "storage_bytes", "threads", "memory", "dtypes", "modules_digest"),
)
OPTIONAL = ("loss_scale",)  # of training in fp16
KNOWN_CAUSES = {"memory.peak_device_bytes": "this device has no memory of its own"}
NOT_UP = "the worker did not come up"
NO_GRADIENT_NORM = "the step of this pair computes no gradient norm"
_NO_MODEL = "a conversion has no model"
NULL_IN_CONVERSION = {
    **{f"parameters.{at}": _NO_MODEL for at in ("initial", "step_10", "final")},
    "input_wait_ns": "reading is a part of a conversion's steps, and not waited for",
}


@dataclass(frozen=True, slots=True)
class Completed:
    """What the footer and the progress display need of a finished repeat."""

    window_ns: int
    units: int
    time_to_quality_ns: int | None = None


def start_repeat(session: Session, repeat: int, stack: ExitStack) -> WorkerProcess:
    """Log the start, start the worker, and log what inside and outside say of the machine."""
    log = session.log
    evicted = session.evict()
    load = machine_load()
    start: dict[str, Any] = {"seed": f"{session.run.seed(repeat):016x}", "world_size": session.run.ranks}
    start |= {"nodes": 1, "load": load, "evicted_bytes": evicted, "reasons": {}}
    if evicted is None:
        start["reasons"] = {"evicted_bytes": "cache is warm: nothing is evicted"}
    with session.interrupts.held():
        log.event("repeat_start", start, repeat)
        session.started = True
    log_clock(session, repeat, "repeat_start")
    scratch = session.scratch(repeat)
    command, debug_file = session.run.command(repeat, scratch), session.debug_file(repeat)
    workers = session.run.resources.workers
    with session.interrupts.held():  # a worker that was started is a worker that will be ended
        ended, remove = partial(workers.ended, repeat), partial(workers.remove, repeat)
        worker = stack.enter_context(WorkerProcess(command, debug_file, ended, remove))
        session.worker = worker
    log_facts(session, repeat, worker, session.run.job(repeat, scratch))
    return worker


def log_facts(session: Session, repeat: int, worker: WorkerProcess, job: dict[str, Any]) -> None:
    """Configure the worker, and log what outside and inside say of machine, image and software."""
    attested = Attestation(None, {"container": NOT_UP}, worker.pid)
    try:
        worker.configure(job)
        hellos, _ = worker.expect_all("hello", session.limits.setup_s)
        attested = _attest(session, repeat, worker)
    finally:  # what is known of the machine is in the log even where the worker does not come up
        facts = {**session.outside["facts"], "container": attested.facts}
        reasons = {**session.outside["reasons"], **attested.reasons}
        outside = {"side": "outside", "node": 0, "facts": facts, "reasons": reasons}
        session.log.event("env", outside, repeat)
    session.pid = worker.pid if attested.pid is None else attested.pid
    for rank, hello in enumerate(hellos):
        facts = hello["facts"]
        why = explain_nulls(facts, "not reported by this framework")
        if isinstance(told := hello.get("reasons"), dict):  # what the worker itself knows of its nulls
            why |= {path: str(told[path])[:200] for path in why if path in told}
        inside = {"side": "inside", "node": 0, "rank": rank, "facts": facts, "reasons": why}
        session.log.event("env", inside, repeat)


def _attest(session: Session, repeat: int, worker: WorkerProcess) -> Attestation:
    try:
        return session.run.resources.workers.attest(repeat, worker.pid)
    except EngineProblem as problem:
        try:
            worker.receive(1.0)  # where the worker has just ended, that is the failure to tell
        except WorkerFailure as failure:
            if failure.code != "timed_out":
                raise
        message = f"the engine cannot say what it runs: {problem}"
        raise WorkerFailure("environment", worker.phase, message) from problem


def run_throughput(session: Session, repeat: int) -> Completed:
    """The run rules' repeat: 10 warm-up steps, a window of 100."""
    with ExitStack() as stack:
        worker = start_repeat(session, repeat, stack)
        # Started during set-up, so that starting it costs the window nothing.
        plan = session.plan
        sampler = stack.enter_context(Sampler(session.pid, plan.device_ids, plan.telemetry))
        probe = Probe(session.pid, session.devices)
        worker.expect_all("window_open", session.limits.setup_s + session.limits.steps_s)
        # The clocks lie next to the window: reading the counters of a device takes 10 ms and more.
        opening = probe.read()
        log_clock(session, repeat, "window_open")
        opened = monotonic_ns()
        worker.command("go")
        (close, *_), closed = worker.expect_all("window_close", session.limits.steps_s)
        log_clock(session, repeat, "window_close")
        closing = probe.read()
        worker.command("tail")
        steps, _ = worker.expect_all("steps", session.limits.setup_s)
        ends, _ = worker.expect_all("repeat_end", session.limits.setup_s)
        samples = sampler.stop()
        worker.expect_all("done", session.limits.setup_s)
    receipt = (opened, closed)
    log_counters(session, repeat, "window_open", opened, opening)
    log_counters(session, repeat, "window_close", closed, closing)
    window = {name: close[name] for name in ("open_ns", "close_ns")}  # of rank 0, which times the repeat
    nulls = log_samples(session, repeat, samples, (window["open_ns"], window["close_ns"]))
    units = session.run.units(repeat)
    for rank, reported in enumerate(steps):
        nulls |= log_steps(session, repeat, rank, reported, shares_of(units, rank, len(steps)))
    log_clock(session, repeat, "repeat_end")
    for rank, end in enumerate(ends):
        log_rank_end(session, repeat, rank, end)
    return log_repeat_end(session, repeat, ends[0], window, receipt, sum(units[WARMUP_STEPS:]), nulls)


def shares_of(units: Sequence[int], rank: int, world_size: int) -> tuple[int, ...]:
    """The units of each step that a rank computed: every rank has equally many rows of the global batch."""
    return tuple(amount * (rank + 1) // world_size - amount * rank // world_size for amount in units)


def log_clock(session: Session, repeat: int, at: str) -> None:
    """A triple of clocks, so that a stretched one shows."""
    session.log.event("clock", {"at": at, "node": 0, **clock_triple()}, repeat)


def log_counters(session: Session, repeat: int, at: str, when: int, read: tuple[dict[str, Any], Any]) -> None:
    """Counters at an edge of the window: immune to how often anything is sampled."""
    data, reasons = read
    offset = session.log.offset(when)
    event = {"source": "counters", "at": at, "node": 0, "offset_ns": offset, **data, "reasons": reasons}
    session.log.event("telemetry", event, repeat)


def log_samples(
    session: Session, repeat: int, samples: list[Sample], window: tuple[int, int]
) -> dict[str, str]:
    """The 1 Hz samples from the window on; returns why fields of them are null."""
    opened, closed = window
    nulls: dict[str, str] = {}
    for when, data, reasons in samples:
        if when < opened:
            continue
        at = "window" if when <= closed else "tail"
        event = {"source": "sample", "at": at, "node": 0, "offset_ns": session.log.offset(when), **data}
        session.log.event("telemetry", event, repeat)
        for path, why in reasons.items():
            nulls.setdefault(f"telemetry.{path}", why)
    return nulls


def log_steps(
    session: Session, repeat: int, rank: int, steps: dict[str, Any], units: tuple[int, ...]
) -> dict[str, str]:
    """The 110 steps of one rank; returns why columns of them are null."""
    columns = {name: steps[name] for name in ("losses", "gradient_norms", "outputs")}
    key = session.plan.key
    sizes = ("bytes_in", "bytes_out") if isinstance(key, ConversionKey) else ()
    for name in (
        "timestamps",
        "dispatched",
        "batches",
        *sizes,
        *(n for n, column in columns.items() if column is not None),
    ):
        if len(steps.get(name, ())) != STEPS:
            raise WorkerFailure(
                "protocol", "report", f"{name}: expected {STEPS} values, found {len(steps.get(name, ()))}"
            )
    for index in range(STEPS):
        row = {name: None if column is None else column[index] for name, column in columns.items()}
        event = {
            "rank": rank,
            "step": index,
            "phase": "warmup" if index < WARMUP_STEPS else "measured",
            "step_end_ns": steps["timestamps"][index],
            "dispatch_ns": steps["dispatched"][index],
            "units": units[index],
            "loss": row["losses"],
            "grad_norm": row["gradient_norms"],
            "output_digest": row["outputs"],
            "batch_digest": steps["batches"][index],
            **{name: steps[name][index] for name in sizes},
        }
        session.log.event("step", event, repeat)
    train = isinstance(key, Key) and key.phase == "train"
    what = "a conversion" if sizes else "inference"
    why = {
        "losses": ("step.loss", f"{what} has no loss"),
        "gradient_norms": ("step.grad_norm", NO_GRADIENT_NORM if train else f"{what} has no gradients"),
        "outputs": ("step.output_digest", "training keeps losses, not outputs"),
    }
    reasons = dict(why[name] for name, column in columns.items() if column is None)
    norms = columns["gradient_norms"]
    if norms is not None and None in norms:
        reasons["step.grad_norm"] = "the gradients of this step are not finite: fp16 skips it"
    return reasons


def log_rank_end(session: Session, repeat: int, rank: int, end: dict[str, Any]) -> None:
    """What one rank reports, with its own window on the run's clock."""
    window = end["window"]
    data = {
        "rank": rank,
        "node": 0,
        "window": {**on_clock(session, window), "collect_ns": window["collect_ns"]},
        **{name: end[name] for name in (*REPORTED, *(name for name in OPTIONAL if name in end))},
        "parameters": {"initial": end["initial"], "step_10": end["step_10"], "final": end["final"]},
    }
    reasons = explain_nulls(data, "the kernel does not tell")
    if session.plan.kind == CONVERSION:
        reasons |= {path: NULL_IN_CONVERSION[path] for path in reasons if path in NULL_IN_CONVERSION}
    session.log.event("rank_end", {**data, "reasons": reasons}, repeat)


def log_repeat_end(
    session: Session,
    repeat: int,
    end: dict[str, Any],
    window: dict[str, int],
    receipt: tuple[int, int],
    units: int,
    nulls: dict[str, str],
) -> Completed:
    """The end of the repeat: its ``window`` and when the harness saw it (``receipt``), on the run's clock.

    ``end`` is what rank 0 reports: where shards are made it is the only one.
    """
    data: dict[str, Any] = {"outcome": "completed", **edges(session, window, receipt)}
    data |= {"units": units, "steps": MEASURED_STEPS}
    if session.plan.kind == CONVERSION:
        data["conversion"] = end["conversion"]
    session.log.event("repeat_end", {**data, "reasons": nulls}, repeat)
    return Completed(data["window"]["ns"], units)


def edges(session: Session, window: dict[str, int], receipt: tuple[int, int]) -> dict[str, Any]:
    """``window`` as rank 0 timed it and ``receipt`` as the harness saw it, on the run's clock."""
    offset = session.log.offset
    return {
        "window": on_clock(session, window),
        "receipt": {"open_ns": offset(receipt[0]), "close_ns": offset(receipt[1])},
    }


def on_clock(session: Session, window: dict[str, int]) -> dict[str, int]:
    """Start, end and length of a window on the run's clock."""
    opened, closed = window["open_ns"], window["close_ns"]
    return {
        "open_ns": session.log.offset(opened),
        "close_ns": session.log.offset(closed),
        "ns": closed - opened,
    }


def explain_nulls(data: dict[str, Any], reason: str) -> dict[str, str]:
    """For every null in ``data``, by its dotted path, a known cause or else ``reason``."""
    return {path: KNOWN_CAUSES.get(path, reason) for path in null_paths(data)}
