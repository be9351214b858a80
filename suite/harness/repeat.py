"""One repeat in throughput mode: start a fresh worker, run it, and write its events to the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from suite.containers.engines.attestation import Attestation
from suite.contract import (
    BENCHMARK,
    CONVERSION,
    LOAD,
    MEASURED_STEPS,
    WARMUP_STEPS,
    ConversionKey,
    Key,
    node_of_rank,
)
from suite.harness.session import SETUP_S, STEPS_S, Session
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.log.nulls import null_paths
from suite.telemetry.clocks import clock_triple
from suite.telemetry.counters import CounterReader
from suite.telemetry.load import machine_load
from suite.telemetry.sampler import Sample, Sampler

REPORTED = (  # fields of the worker's report that are logged unchanged
    *("timestamp_kind", "warmup_ns", "import_ns", "setup_ns"),
    *("compile_ns", "soak_ns", "soak_steps", "tail_steps"),
    *("input_wait_ns", "cpu_time_ns", "storage_bytes", "threads", "memory", "dtypes", "modules_digest"),
)
OPTIONAL = ("loss_scale", "exchange_clock")  # only in fp16 training; only of ranks that record arrivals
_SIZES = ("bytes_in", "bytes_out")  # of each step of a job without a model
KNOWN_CAUSES = {"memory.peak_device_bytes": "this device has no memory separate from the host"}
NOT_STARTED = "the worker did not start"
NO_EXCHANGE = "no ranks exchange gradients"
ARRIVALS_UNKNOWN = (
    "no clock shows when this framework has computed gradients on this device, "
    "or the clock was set, or the pair does not record it"
)
NO_GRADIENT_NORM = "the step of this pair computes no gradient norm"
_PARAMETERS = tuple(f"parameters.{at}" for at in ("initial", "step_10", "final"))
NULL_WITHOUT_MODEL = {  # the reasons of nulls by kind of job
    CONVERSION: {
        **dict.fromkeys(_PARAMETERS, "a conversion has no model"),
        "input_wait_ns": "reading is part of the steps of a conversion",
    },
    LOAD: {
        **dict.fromkeys(_PARAMETERS, "a load has no model"),
        "input_wait_ns": "a step of a load is nothing but the wait for its batch: 100 % of the window",
    },
}


@dataclass(frozen=True, slots=True)
class Completed:
    """The results of a repeat that the footer and the progress display need."""

    window_ns: int
    units: int
    time_to_quality_ns: int | None = None


def start_repeat(session: Session, repeat: int, stack: ExitStack) -> WorkerProcess:
    """Log the start of the repeat, start the worker, and log the facts from inside and outside it."""
    log = session.log
    evicted = session.evict()
    load = machine_load()
    start: dict[str, Any] = {"seed": f"{session.run.seed(repeat):016x}", "world_size": session.run.ranks}
    start |= {"nodes": 1 + len(session.others), "load": load, "evicted_bytes": evicted, "reasons": {}}
    if evicted is None:
        start["reasons"] = {"evicted_bytes": "cache is warm: nothing is evicted"}
    with session.interrupts.held():
        log.event("repeat_start", start, repeat)
        session.started = True
    log_clock(session, repeat, "repeat_start")
    log_other_clocks(session, repeat, "repeat_start")
    for node in session.others:
        stack.callback(node.end)
    worker = session.start_worker(repeat, stack, session.others)
    log_facts(session, repeat, worker, session.job(repeat))
    return worker


def log_facts(session: Session, repeat: int, worker: WorkerProcess, job: dict[str, Any]) -> None:
    """Configure the worker, and log the facts about machine, image and software from outside and inside."""
    nodes = 1 + len(session.others)
    attested = [Attestation(None, {"container": NOT_STARTED}, worker.pid)] * nodes
    try:
        worker.configure(job)
        hellos, _ = worker.expect_all("hello", SETUP_S)
        attested = session.attest(repeat, worker, session.others)
    finally:  # log the facts about the machines even if the worker does not start
        machines = [session.outside, *({"facts": n.facts, "reasons": n.reasons} for n in session.others)]
        for node, (machine, found) in enumerate(zip(machines, attested, strict=True)):
            facts = {**machine["facts"], "container": found.facts}
            reasons = {**machine["reasons"], **found.reasons}
            outside = {"side": "outside", "node": node, "facts": facts, "reasons": reasons}
            session.log.event("env", outside, repeat)
    session.pid = worker.pid if attested[0].pid is None else attested[0].pid
    for rank, hello in enumerate(hellos):
        facts = hello["facts"]
        why = explain_nulls(facts, "not reported by this framework")
        if isinstance(reported := hello.get("reasons"), dict):  # the worker's own reasons are more exact
            why |= {path: str(reported[path])[:200] for path in why if path in reported}
        inside = {
            "side": "inside",
            "node": node_of_rank(rank, nodes, len(hellos)),
            "rank": rank,
            "facts": facts,
            "reasons": why,
        }
        session.log.event("env", inside, repeat)


def run_throughput(session: Session, repeat: int, start_next: Callable[[], None]) -> Completed:
    """Run one repeat: 10 warm-up steps and the window. ``start_next`` may start later workers early."""
    with ExitStack() as stack:
        worker = start_repeat(session, repeat, stack)
        start_next()
        # Started during the worker's set-up, so that its start does not fall into the window.
        plan = session.plan
        sampler = stack.enter_context(Sampler(session.pid, plan.device_ids, plan.telemetry))
        counters = CounterReader(session.pid, session.devices)
        worker.expect_all("window_open", SETUP_S + STEPS_S)
        session.await_early()
        # Read next to the window: reading the counters of a device takes 10 ms and more.
        before = log_other_clocks(session, repeat, "window_open")
        openings = [node.counters() for node in session.others]
        opening = counters.read()
        log_clock(session, repeat, "window_open")
        opened = monotonic_ns()
        worker.command("go")
        limit_s = STEPS_S * max(1.0, plan.measured_steps / MEASURED_STEPS)
        (close, *_), closed = worker.expect_all("window_close", limit_s)
        log_clock(session, repeat, "window_close")
        closing = counters.read()
        closings = [node.counters() for node in session.others]
        after = log_other_clocks(session, repeat, "window_close")
        worker.command("tail")
        # Batches of more than the usual steps are read again for their digests.
        steps, _ = worker.expect_all("steps", SETUP_S + limit_s)
        ends, _ = worker.expect_all("repeat_end", SETUP_S)
        samples = [(sampler.stop(), sampler.failure), *(node.samples() for node in session.others)]
        for node, (_, failure) in enumerate(samples):
            if failure is not None:
                of_node = f"node {node}: " if session.others else ""
                session.progress.write(f"warning: samples of telemetry are missing: {of_node}{failure}")
        sweeps = _sweeps(session, repeat, worker)
        worker.expect_all("done", SETUP_S)
    receipt = (opened, closed)
    ahead = ahead_of_nodes(before, after)
    log_all_counters(session, repeat, "window_open", [(opened, *opening), *openings], ahead)
    log_all_counters(session, repeat, "window_close", [(closed, *closing), *closings], ahead)
    window = {name: close[name] for name in ("open_ns", "close_ns")}  # of rank 0, which times the repeat
    spans = {**ends[0]["spans"], "window": (window["open_ns"], window["close_ns"])}
    nulls: dict[str, str] = {}
    for node, (taken, _) in enumerate(samples):
        here = [(when - ahead[node], data, reasons) for when, data, reasons in taken]
        nulls |= log_samples(session, repeat, here, spans, node)
    units = session.run.units(repeat)
    for rank, reported in enumerate(steps):
        nulls |= log_steps(session, repeat, rank, reported, units_of_rank(units, rank, len(steps)))
    log_clock(session, repeat, "repeat_end")
    log_other_clocks(session, repeat, "repeat_end")
    for rank, end in enumerate(ends):
        node = node_of_rank(rank, len(ahead), len(ends))
        log_rank_end(session, repeat, rank, end, node, ahead[node])
    for rank, found in enumerate(sweeps):
        data = {name: found[name] for name in ("operation", "sizes", "ended")}
        where = {"rank": rank, "node": node_of_rank(rank, len(ahead), len(ends))}
        session.log.event("exchange_sweep", {**where, **data, "reasons": {}}, repeat)
    sums = _sums(session.plan.kind, steps)
    return log_repeat_end(session, repeat, window, receipt, sum(units[WARMUP_STEPS:]), sums, nulls)


def _sums(kind: str, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The bytes of the measured ``steps`` of all ranks, under the name of the kind; empty for a benchmark."""
    if kind == BENCHMARK:
        return {}
    return {kind: {name: sum(sum(rank[name][WARMUP_STEPS:]) for rank in steps) for name in _SIZES}}


def _sweeps(session: Session, repeat: int, worker: WorkerProcess) -> list[dict[str, Any]]:
    """The ranks' sweeps of their exchange, which follow repeat 0 of a run that exchanges."""
    key = session.plan.key
    if repeat or isinstance(key, ConversionKey) or not key.exchanges:
        return []
    return worker.expect_all("exchange_sweep", SETUP_S)[0]


def units_of_rank(units: Sequence[int], rank: int, world_size: int) -> tuple[int, ...]:
    """The units of each step attributed to ``rank``: equal shares, which add up to ``units``.

    They are exact where each row has the same units. Sentences of gnmt differ in tokens: there only the sum
    over the ranks is exact.
    """
    return tuple(amount * (rank + 1) // world_size - amount * rank // world_size for amount in units)


def log_clock(session: Session, repeat: int, at: str) -> None:
    """Log three clocks, so that the checker can detect a stretched one."""
    session.log.event("clock", {"at": at, "node": 0, **clock_triple()}, repeat)


def log_other_clocks(session: Session, repeat: int, at: str) -> list[int]:
    """Log three clocks of every node but node 0; returns what each is ahead of this machine's, in ns."""
    found = []
    for node in session.others:
        ahead, bound = node.measure_clock()
        origin = divmod(session.log.origin_ns + ahead, 1_000_000_000)
        event = {"at": at, "node": node.number, "origin": list(origin), "bound_ns": bound, **node.clock()}
        session.log.event("clock", event, repeat)
        found.append(ahead)
    return found


def ahead_of_nodes(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """What the clock of each node is ahead of this machine's in the middle of a window, in ns; node 0: 0.

    ``before`` and ``after`` the window are those of the other nodes.
    """
    return [0, *((start + end) // 2 for start, end in zip(before, after, strict=True))]


def on_this_clock(window: Mapping[str, int], ahead: int) -> dict[str, int]:
    """The ``window`` of a rank on this machine's clock, which its node's is ``ahead`` of, in ns."""
    return {**window, "open_ns": window["open_ns"] - ahead, "close_ns": window["close_ns"] - ahead}


def log_all_counters(
    session: Session, repeat: int, at: str, readings: Sequence[Sequence[Any]], ahead: Sequence[int]
) -> None:
    """Log the counters of every node at the window start or end; they do not depend on the sampling rate.

    ``readings`` by node: when they were read on its clock, their data and reasons.
    """
    for node, (when, data, reasons) in enumerate(readings):
        offset = session.log.offset(when - ahead[node])
        event = {"source": "counters", "at": at, "node": node, "offset_ns": offset, **data}
        session.log.event("telemetry", {**event, "reasons": reasons}, repeat)


def log_samples(
    session: Session,
    repeat: int,
    samples: list[Sample],
    spans: Mapping[str, tuple[int, int]],
    node: int = 0,
) -> dict[str, str]:
    """Log the 1 Hz samples of ``node`` taken while steps ran; returns the reasons of their null fields.

    ``spans``: start and end of ``soak``, ``window`` and ``tail`` (CLOCK_MONOTONIC, ns). Between them the
    device waits for the host, so that a sample would not describe the steps.
    """
    nulls: dict[str, str] = {}
    for when, data, reasons in samples:
        at = next((name for name, (first, last) in spans.items() if first <= when <= last), None)
        if at is None:
            continue
        event = {"source": "sample", "at": at, "node": node, "offset_ns": session.log.offset(when), **data}
        session.log.event("telemetry", event, repeat)
        for path, why in reasons.items():
            nulls.setdefault(f"telemetry.{path}", why)
    return nulls


def log_steps(
    session: Session, repeat: int, rank: int, steps: dict[str, Any], units: tuple[int, ...]
) -> dict[str, str]:
    """Log the steps of one rank; returns the reasons of null columns."""
    columns = {name: steps[name] for name in ("arrivals", "losses", "gradient_norms", "outputs")}
    key = session.plan.key
    count = WARMUP_STEPS + session.plan.measured_steps
    kind = session.plan.kind
    sizes = () if kind == BENCHMARK else _SIZES
    for name in (
        "timestamps",
        "dispatched",
        "batches",
        *sizes,
        *(n for n, column in columns.items() if column is not None),
    ):
        if len(steps.get(name, ())) != count:
            raise WorkerFailure(
                "protocol", "report", f"{name}: expected {count} values, found {len(steps.get(name, ()))}"
            )
    for index in range(count):
        row = {name: None if column is None else column[index] for name, column in columns.items()}
        event = {
            "rank": rank,
            "step": index,
            "phase": "warmup" if index < WARMUP_STEPS else "measured",
            "step_end_ns": steps["timestamps"][index],
            "dispatch_ns": steps["dispatched"][index],
            "exchange_ns": row["arrivals"],
            "units": units[index],
            "loss": row["losses"],
            "grad_norm": row["gradient_norms"],
            "output_digest": row["outputs"],
            "batch_digest": steps["batches"][index],
            **{name: steps[name][index] for name in sizes},
        }
        session.log.event("step", event, repeat)
    train = isinstance(key, Key) and key.phase == "train"
    job = "inference" if kind == BENCHMARK else f"a {kind}"
    exchanges = isinstance(key, Key) and key.exchanges
    why = {
        "arrivals": ("step.exchange_ns", ARRIVALS_UNKNOWN if exchanges else NO_EXCHANGE),
        "losses": ("step.loss", f"{job} has no loss"),
        "gradient_norms": ("step.grad_norm", NO_GRADIENT_NORM if train else f"{job} has no gradients"),
        "outputs": (
            "step.output_digest",
            "training has losses and no outputs" if train else f"{job} has no outputs",
        ),
    }
    reasons = dict(why[name] for name, column in columns.items() if column is None)
    norms = columns["gradient_norms"]
    if norms is not None and None in norms:
        reasons["step.grad_norm"] = "the gradients of a step are not finite: fp16 skips such a step"
    return reasons


def log_rank_end(
    session: Session, repeat: int, rank: int, end: dict[str, Any], node: int = 0, ahead: int = 0
) -> None:
    """Log the report of one rank, with its window on the run's clock.

    The clock of its node is ``ahead`` of this machine's, in ns.
    """
    window = on_this_clock(end["window"], ahead)
    data = {
        "rank": rank,
        "node": node,
        "window": {**on_run_clock(session, window), "collect_ns": window["collect_ns"]},
        **{name: end[name] for name in (*REPORTED, *(name for name in OPTIONAL if name in end))},
        "parameters": {"initial": end["initial"], "step_10": end["step_10"], "final": end["final"]},
    }
    reasons = explain_nulls(data, "the kernel does not report it")
    known = NULL_WITHOUT_MODEL.get(session.plan.kind, {})
    reasons |= {path: known[path] for path in reasons if path in known}
    session.log.event("rank_end", {**data, "reasons": reasons}, repeat)


def log_repeat_end(
    session: Session,
    repeat: int,
    window: dict[str, int],
    receipt: tuple[int, int],
    units: int,
    sums: Mapping[str, Any],
    nulls: dict[str, str],
) -> Completed:
    """Log the end of the repeat: its ``window`` and when the harness received its events (``receipt``).

    ``sums`` are further fields: the bytes of a job without a model.
    """
    data: dict[str, Any] = {"outcome": "completed", **window_times(session, window, receipt)}
    data |= {"units": units, "steps": session.plan.measured_steps}
    data |= sums
    session.log.event("repeat_end", {**data, "reasons": nulls}, repeat)
    return Completed(data["window"]["ns"], units)


def window_times(session: Session, window: dict[str, int], receipt: tuple[int, int]) -> dict[str, Any]:
    """``window`` as timed by rank 0, and ``receipt`` as timed by the harness, on the run's clock."""
    offset = session.log.offset
    return {
        "window": on_run_clock(session, window),
        "receipt": {"open_ns": offset(receipt[0]), "close_ns": offset(receipt[1])},
    }


def on_run_clock(session: Session, window: dict[str, int]) -> dict[str, int]:
    """Start, end and length of a window on the run's clock."""
    opened, closed = window["open_ns"], window["close_ns"]
    return {
        "open_ns": session.log.offset(opened),
        "close_ns": session.log.offset(closed),
        "ns": closed - opened,
    }


def explain_nulls(data: dict[str, Any], reason: str) -> dict[str, str]:
    """Dotted path -> known cause or ``reason``, for every null in ``data``."""
    return {path: KNOWN_CAUSES.get(path, reason) for path in null_paths(data)}
