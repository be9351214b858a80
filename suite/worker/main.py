"""One repeat: set-up, compilation, soak, warm-up, window, tail, and the report of it all."""

from __future__ import annotations

import gc
import math
import sys
import traceback
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from suite import workloads
from suite.worker import children, fingerprint, loop, record
from suite.worker.batches import send_digests
from suite.worker.channel import PROTOCOL, Channel
from suite.worker.conversion import NoBatches, convert_all, repeat_fields, step_columns
from suite.worker.job import parse_job
from suite.worker.quality import train_to_target
from suite.workloads.contract import MEASURED_STEPS, STEPS, WARMUP_STEPS, BadData, Job
from suite.workloads.stream import digest_arrays

_OUT_OF_MEMORY = (
    *("out of memory", "outofmemory", "can't allocate memory", "cannot allocate memory", "bad_alloc"),
    *("failed to allocate", "resourceexhausted", "oom when", "alloc_failed"),  # frameworks; cuBLAS, cuDNN
)


@dataclass
class Bench:
    """The parts of one repeat after set-up."""

    job: Job
    channel: Channel
    framework: Any
    pair: Any
    data: Any  # record.RecordingData, or what stands in its place

    @property
    def converts(self) -> bool:
        """Whether shards are made and no model runs."""
        return self.job.key.phase == "preprocess"

    def run_span(self, first: int, count: int) -> loop.Span:
        """One span in the manner of the job's scenario."""
        single = self.job.key.phase == "infer" and self.job.key.scenario == "single_stream"
        run = loop.run_single_stream if single else loop.run_span
        return run(self.pair, self.framework, first, count)


def main() -> int:
    """Run the repeat that stdin describes; exit status 0 only after the event ``done``."""
    started = monotonic_ns()
    channel = Channel()
    try:
        _repeat(parse_job(channel.configuration["job"]), channel, started)
    except BaseException as error:  # noqa: BLE001 - the harness must learn of everything
        traceback.print_exc(file=sys.stderr)
        phase = channel.phase_name
        channel.send("fault", code=_fault_code(error, phase), phase=phase, message=_describe(error))
        return 1
    channel.send("done")
    return 0


def _repeat(job: Job, channel: Channel, started: int) -> None:
    if job.mode == "batches":
        send_digests(job, channel)
        return
    channel.phase("import")
    if job.mode == "fingerprint":
        fingerprint.prepare_environment()
    framework_module = workloads.framework_module(job)
    pair_module = workloads.pair_module(job)
    framework = framework_module.Framework(job)
    import_ns = monotonic_ns() - started
    facts, reasons = record.facts(framework.describe(), workloads.decoder_of(job))
    channel.send("hello", protocol=PROTOCOL, facts=facts, reasons=reasons)
    if job.mode == "quality":
        train_to_target(job, channel, framework, pair_module, import_ns)
        return
    if job.mode == "fingerprint":
        fingerprint.take(job, channel, framework_module, pair_module)
        return
    if job.mode == "convert":
        convert_all(job, channel, framework, pair_module)
        return
    channel.phase("setup")
    imported_bytes, setup_from = record.peak_rss_bytes(), monotonic_ns()
    bench = _bench(job, channel, framework, pair_module)
    pair = bench.pair
    initial = digest_arrays(pair.parameters())
    setup_ns = monotonic_ns() - setup_from
    report = {"import_ns": import_ns, "setup_ns": setup_ns, "initial": initial, **_prepare(bench)}
    if job.probe_steps:
        _probe(bench, imported_bytes)
    else:
        _measure(bench, report)


def _bench(job: Job, channel: Channel, framework: Any, pair_module: Any) -> Bench:
    if job.key.phase == "preprocess":
        return Bench(job, channel, framework, pair_module.Pair(job, framework), NoBatches())
    data = record.RecordingData(workloads.open_data(job))
    return Bench(job, channel, framework, pair_module.Pair(job, framework, data), data)


def _prepare(bench: Bench) -> dict[str, int]:
    """Compile by running steps, soak, and put the initial state back."""
    bench.channel.phase("compile")

    def compile_steps() -> None:
        seen: set[int | None] = set()
        for step in range(STEPS):
            slot = bench.data.slot(step)
            if slot not in seen:
                seen.add(slot)
                bench.pair.step(step)
        bench.framework.synchronize()
        bench.pair.collect()

    _, compile_ns = loop.timed(compile_steps)
    bench.channel.phase("soak")
    soak_from = monotonic_ns()
    soak_steps = loop.soak(bench.pair, bench.framework, bench.job.soak_ns, STEPS)
    soak_ns = monotonic_ns() - soak_from if soak_steps else 0
    bench.pair.reset()
    bench.data.forget()
    return {"compile_ns": compile_ns, "soak_ns": soak_ns, "soak_steps": soak_steps}


def _probe(bench: Bench, imported_bytes: int) -> None:
    """Take the memory that a repeat takes: its spans, with all that it holds until it reports."""
    steps = bench.job.probe_steps
    bench.channel.phase("probe")
    held: list[Any] = [bench.run_span(0, min(steps, WARMUP_STEPS)), bench.pair.parameters()]
    if steps > WARMUP_STEPS:
        held += [bench.run_span(WARMUP_STEPS, steps - WARMUP_STEPS), bench.pair.parameters()]
    peak = record.peak_rss_bytes()  # while all of it is held
    bench.channel.send("probed", peak_rss_bytes=peak, imported_bytes=imported_bytes, spans=len(held) // 2)


def _measure(bench: Bench, report: dict[str, Any]) -> None:
    channel, pair = bench.channel, bench.pair
    gc.collect()
    gc.freeze()
    gc.disable()
    channel.phase("warmup")
    warmup = bench.run_span(0, WARMUP_STEPS)
    scaled = record.scaling(bench.framework)
    at_ten = pair.parameters()
    threads_before = record.thread_count()
    read_from, wait_from = children.read_bytes(), bench.data.wait_ns
    channel.phase("window")
    channel.send("window_open")
    channel.wait("go")
    cpu_from = children.cpu_time_ns()
    window = bench.run_span(WARMUP_STEPS, MEASURED_STEPS)
    cpu_ns = children.cpu_time_ns() - cpu_from
    wait_ns = bench.data.wait_ns - wait_from
    threads_after = record.thread_count()
    channel.send("window_close", open_ns=window.open_ns, close_ns=window.close_ns)
    gc.enable()
    channel.wait("tail")  # until the closing counters are read: nothing of what follows is in them
    report |= {"cpu_time_ns": cpu_ns, "input_wait_ns": wait_ns, "warmup_ns": warmup.ns}
    report |= {"threads": {"before": threads_before, "after": threads_after}}
    report |= {"storage_bytes": _difference(read_from, children.read_bytes())}
    report |= record.loss_scale(scaled, record.scaling(bench.framework))
    report |= {"final": digest_arrays(pair.parameters()), "step_10": digest_arrays(at_ten)}
    channel.phase("tail")
    report["tail_steps"] = loop.soak(pair, bench.framework, bench.job.tail_ns, STEPS)
    channel.phase("report")
    channel.send("steps", **_steps(bench, warmup, window))
    if bench.converts:
        report |= repeat_fields(pair)
        pair.close()
    channel.send("repeat_end", **report, **_state(bench, window))


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _steps(bench: Bench, warmup: loop.Span, window: loop.Span) -> dict[str, Any]:
    results = warmup.results + window.results
    if len(results) != STEPS:
        raise RuntimeError(f"collect() must give one result a step: expected {STEPS}, found {len(results)}")
    timed = {"marks": warmup.marks + window.marks, "dispatched": warmup.dispatched + window.dispatched}
    if bench.converts:
        return {**timed, **step_columns(bench.pair)}
    train = bench.job.key.phase == "train"
    losses = [float(value) for value in results] if train else None
    if losses is not None:
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise FloatingPointError(f"loss of step {index} is {loss}")
    norms = _gradient_norms(bench) if train else None
    return {
        **timed,
        "losses": None if losses is None else [loss.hex() for loss in losses],
        "gradient_norms": norms,
        "outputs": None if train else [record.array_digest(value) for value in results],
        "batches": [bench.data.digest(step) for step in range(STEPS)],
    }


def _gradient_norms(bench: Bench) -> list[str | None] | None:
    """One a step; None for a step whose gradients are not finite, as where fp16 skips."""
    read = getattr(bench.pair, "gradient_norms", None)
    norms = [float(norm) for norm in read()] if read is not None else []
    return [norm.hex() if math.isfinite(norm) else None for norm in norms] if len(norms) == STEPS else None


def _state(bench: Bench, window: loop.Span) -> dict[str, Any]:
    single = bench.job.key.scenario == "single_stream"
    return {
        "mark_kind": "host_completion" if single else bench.framework.mark_kind,
        "window": {"open_ns": window.open_ns, "close_ns": window.close_ns, "collect_ns": window.collect_ns},
        "memory": {"peak_rss_bytes": record.peak_rss_bytes(), **bench.framework.memory()},
        "dtypes": bench.framework.dtypes(),
        "modules_digest": record.modules_digest(),
    }


def _fault_code(error: BaseException, phase: str) -> str:
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return "out_of_memory"
    if isinstance(error, FloatingPointError):
        return "non_finite_loss"
    if isinstance(error, BadData) or (isinstance(error, FileNotFoundError) and phase == "setup"):
        return "dataset"
    if isinstance(error, ImportError) or "compiler found" in text or "compiler is not found" in text:
        return "environment"
    if isinstance(error, RuntimeError) and str(error).startswith("protocol:"):
        return "protocol"
    if isinstance(error, OSError):
        return "io"
    return "crashed"


def _describe(error: BaseException) -> str:
    """Type and first line, without paths: the log names no machine's folders."""
    lines = str(error).strip().splitlines() or [""]
    told = lines[-1] if lines[0].startswith("Traceback") else lines[0]  # MXNet puts its own stack first
    words = told.split()
    named = isinstance(error, BadData)  # files within the dataset: only what begins with / is a place
    text = " ".join("<path>" if "/" in (word[:1] if named else word) else word for word in words)
    return f"{type(error).__name__}: {text}"[:500]
