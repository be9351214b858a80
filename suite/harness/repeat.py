"""One repeat: a fresh worker from set-up to report, and everything about it written to the log."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Any

from suite.harness.session import Session
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.record.nulls import null_paths
from suite.runtime.attestation import Attested, EngineProblem
from suite.telemetry.clocks import clock_triple
from suite.telemetry.counters import Probe
from suite.telemetry.load import machine_load
from suite.telemetry.sampler import Sample, Sampler
from suite.workloads import specification
from suite.workloads.contract import MEASURED_STEPS, STEPS, WARMUP_STEPS

REPORTED = (  # fields of the worker's report that go into the log as they are
    *("mark_kind", "warmup_ns", "import_ns", "setup_ns", "compile_ns", "soak_ns", "soak_steps", "tail_steps"),
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
    plan, log = session.plan, session.log
    evicted = session.evict()
    load = machine_load()
    start: dict[str, Any] = {"seed": f"{plan.seed(repeat):016x}", "world_size": 1, "load": load}
    start |= {"evicted_bytes": evicted, "reasons": {}}
    if evicted is None:
        start["reasons"] = {"evicted_bytes": "cache is warm: nothing is evicted"}
    with session.interrupts.held():
        log.event("repeat_start", start, repeat)
        session.started = True
    log_clock(session, repeat, "repeat_start")
    scratch = session.scratch(repeat)
    command, debug_file = plan.command(repeat, scratch), session.debug_file(repeat)
    workers = plan.started_workers
    with session.interrupts.held():  # a worker that was started is a worker that will be ended
        ended, remove = partial(workers.ended, repeat), partial(workers.remove, repeat)
        worker = stack.enter_context(WorkerProcess(command, debug_file, ended, remove))
        session.worker = worker
    log_facts(session, repeat, worker, plan.job(repeat, scratch))
    return worker


def log_facts(session: Session, repeat: int, worker: WorkerProcess, job: dict[str, Any]) -> None:
    """Configure the worker, and log what outside and inside say of machine, image and software."""
    attested = Attested(None, {"container": NOT_UP}, worker.pid)
    try:
        worker.configure(job)
        hello, _ = worker.expect("hello", session.limits.setup_s)
        attested = _attest(session, repeat, worker)
    finally:  # what is known of the machine is in the log even where the worker does not come up
        facts = {**session.outside["facts"], "container": attested.facts}
        reasons = {**session.outside["reasons"], **attested.reasons}
        session.log.event("env", {"side": "outside", "facts": facts, "reasons": reasons}, repeat)
    session.pid = worker.pid if attested.pid is None else attested.pid
    inside = hello["facts"]
    why = explain_nulls(inside, "not reported by this framework")
    if isinstance(told := hello.get("reasons"), dict):  # what the worker itself knows of its nulls
        why |= {path: str(told[path])[:200] for path in why if path in told}
    session.log.event("env", {"side": "inside", "facts": inside, "reasons": why}, repeat)


def _attest(session: Session, repeat: int, worker: WorkerProcess) -> Attested:
    try:
        return session.plan.started_workers.attest(repeat, worker.pid)
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
        worker.expect("window_open", session.limits.setup_s + session.limits.steps_s)
        # The clocks lie next to the window: reading the counters of a device takes 10 ms and more.
        opening = probe.read()
        log_clock(session, repeat, "window_open")
        opened = monotonic_ns()
        worker.command("go")
        close, closed = worker.expect("window_close", session.limits.steps_s)
        log_clock(session, repeat, "window_close")
        closing = probe.read()
        worker.command("tail")
        steps, _ = worker.expect("steps", session.limits.setup_s)
        end, _ = worker.expect("repeat_end", session.limits.setup_s)
        samples = sampler.stop()
        worker.expect("done", session.limits.setup_s)
    receipt = (opened, closed)
    log_counters(session, repeat, "window_open", opened, opening)
    log_counters(session, repeat, "window_close", closed, closing)
    telemetry_nulls = log_samples(session, repeat, samples, (close["open_ns"], close["close_ns"]))
    units = specification(session.plan.key.workload).units(session.plan.key, session.plan.seed(repeat))
    step_nulls = log_steps(session, repeat, steps, units)
    log_clock(session, repeat, "repeat_end")
    return log_repeat_end(
        session, repeat, end, receipt, sum(units[WARMUP_STEPS:]), step_nulls | telemetry_nulls
    )


def log_clock(session: Session, repeat: int, at: str) -> None:
    """A triple of clocks, so that a stretched one shows."""
    session.log.event("clock", {"at": at, **clock_triple()}, repeat)


def log_counters(session: Session, repeat: int, at: str, when: int, read: tuple[dict[str, Any], Any]) -> None:
    """Counters at an edge of the window: immune to how often anything is sampled."""
    data, reasons = read
    offset = session.log.offset(when)
    event = {"source": "counters", "at": at, "offset_ns": offset, **data, "reasons": reasons}
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
        event = {"source": "sample", "at": at, "offset_ns": session.log.offset(when), **data}
        session.log.event("telemetry", event, repeat)
        for path, why in reasons.items():
            nulls.setdefault(f"telemetry.{path}", why)
    return nulls


def log_steps(session: Session, repeat: int, steps: dict[str, Any], units: tuple[int, ...]) -> dict[str, str]:
    """The 110 steps; returns why columns of them are null."""
    columns = {name: steps[name] for name in ("losses", "gradient_norms", "outputs")}
    sizes = ("bytes_in", "bytes_out") if session.plan.key.phase == "preprocess" else ()
    for name in (
        "marks",
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
            "worker": 0,
            "step": index,
            "phase": "warmup" if index < WARMUP_STEPS else "measured",
            "mark_ns": steps["marks"][index],
            "dispatch_ns": steps["dispatched"][index],
            "units": units[index],
            "loss": row["losses"],
            "grad_norm": row["gradient_norms"],
            "output_digest": row["outputs"],
            "batch_digest": steps["batches"][index],
            **{name: steps[name][index] for name in sizes},
        }
        session.log.event("step", event, repeat)
    train = session.plan.key.phase == "train"
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


def log_repeat_end(
    session: Session,
    repeat: int,
    end: dict[str, Any],
    receipt: tuple[int, int],
    units: int,
    nulls: dict[str, str],
) -> Completed:
    """The repeat's own account, with the window on the run's clock."""
    data = {
        "outcome": "completed",
        **{name: end[name] for name in (*REPORTED, *(name for name in OPTIONAL if name in end))},
        **edges(session, end["window"], receipt),
        "units": units,
        "steps": MEASURED_STEPS,
        "parameters": {"initial": end["initial"], "step_10": end["step_10"], "final": end["final"]},
    }
    reasons = explain_nulls(data, "the kernel does not tell")
    if session.plan.key.phase == "preprocess":
        data["conversion"] = end["conversion"]
        reasons |= {path: NULL_IN_CONVERSION[path] for path in reasons if path in NULL_IN_CONVERSION}
    session.log.event("repeat_end", {**data, "reasons": reasons | nulls}, repeat)
    return Completed(data["window"]["ns"], units)


def edges(session: Session, window: dict[str, int], receipt: tuple[int, int]) -> dict[str, Any]:
    """``window`` as the worker timed it and ``receipt`` as the harness saw it, on the run's clock."""
    offset = session.log.offset
    return {
        "window": {
            "open_ns": offset(window["open_ns"]),
            "close_ns": offset(window["close_ns"]),
            "ns": window["close_ns"] - window["open_ns"],
            "collect_ns": window["collect_ns"],
        },
        "receipt": {"open_ns": offset(receipt[0]), "close_ns": offset(receipt[1])},
    }


def explain_nulls(data: dict[str, Any], reason: str) -> dict[str, str]:
    """For every null in ``data``, by its dotted path, a known cause or else ``reason``."""
    return {path: KNOWN_CAUSES.get(path, reason) for path in null_paths(data)}
