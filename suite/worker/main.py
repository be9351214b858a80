"""One repeat: set-up, compilation, soak, warm-up, window, telemetry tail, and the report."""

from __future__ import annotations

import gc
import math
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, ClassVar

from suite import workloads
from suite.common.stream import digest_arrays
from suite.common.support import decodes_on_gpu
from suite.contract import MEASURED_STEPS, STEPS, WARMUP_STEPS, BadData, ConversionJob, Job, LostRank
from suite.contract.traits import framework_names, traits_of
from suite.worker import children, fingerprint, loop, parent, record
from suite.worker.channel import PROTOCOL, Channel
from suite.worker.exchange_sweep import sweep
from suite.worker.group import STRANDED, Group, SpanBarrier
from suite.worker.job import parse_job
from suite.worker.quality import train_to_target

_OUT_OF_MEMORY = (
    *(
        "out of memory",
        "can't allocate memory",
        "cannot allocate memory",
        "bad_alloc",
    ),  # of the operating system
    *(text for name in framework_names() for text in traits_of(name).out_of_memory),
)


WITHOUT_MODEL = ("initial", "step_10", "final", "input_wait_ns")  # fields that are null without a model
KEPT_OUTPUTS = 1 << 30  # bytes of host memory for the outputs of a window of more than 100 steps


@dataclass
class Bench:
    """The objects of one repeat after set-up."""

    job: Job
    channel: Channel
    framework: Any
    pair: Any
    data: Any  # record.RecordingData, or conversion.NoBatches
    group: Group = field(default_factory=Group)
    # Batches of a soak with a cold cache: those that a reader reads ahead of them are of the warm-up too.
    cold_batches: ClassVar[int] = 2

    def run_span(self, first: int, count: int, meeting: loop.Meeting | None = None) -> loop.Span:
        """Run one span as the scenario of the job requires."""
        single = self.job.key.phase == "infer" and self.job.key.scenario == "single_stream"
        run = loop.run_single_stream if single else loop.run_span
        return run(self.pair, self.framework, first, count, meeting)

    def steps_to_compile(self) -> list[int]:
        """The steps to run before the warm-up, so that nothing is compiled in the window."""
        steps: list[int] = self.data.first_of_each_shape()
        return steps

    def soak(self, length_ns: int, steps: int = STEPS) -> tuple[int, tuple[int, int]]:
        """Run soak or telemetry tail over the first ``steps`` batches, again and again.

        Returns the number of its steps, its start and its end.
        """
        return loop.soak(self.pair, self.framework, length_ns, steps, decide=self.group.decide)

    def columns(self, results: list[Any]) -> dict[str, Any]:
        """The fields of each step beside its timestamps, from the ``results`` of all steps."""
        train = self.job.key.phase == "train"
        losses = [float(value) for value in results] if train else None
        if losses is not None:
            for index, loss in enumerate(losses):
                if not math.isfinite(loss):
                    raise FloatingPointError(f"loss of step {index} is {loss}")
        norms = _gradient_norms(self) if train else None
        return {
            "losses": None if losses is None else [loss.hex() for loss in losses],
            "gradient_norms": norms,
            "outputs": None if train else [record.array_digest(value) for value in results],
            "batches": self.data.digests(range(self.job.steps)),
        }

    def closing_fields(self) -> dict[str, Any]:
        """Further fields of the report of the repeat, computed after its steps are sent."""
        return {}


def main(repeat: Callable[[Job | ConversionJob, Channel, int], None]) -> int:
    """Run the job of the configuration line with ``repeat``; exit status 0 only after the event ``done``.

    If the job has several ranks, this process is the parent of those that the configuration names.
    """
    started = monotonic_ns()
    channel = Channel()
    job: Job | ConversionJob | None = None
    try:
        if ranks := channel.configuration.get("ranks"):
            return parent.run_ranks(channel, ranks)
        channel.listen()
        job = parse_job(channel.configuration["job"])
        if isinstance(job, Job) and decodes_on_gpu(job.key, job.device, job.loader):
            # CUDA reads it at its start. The decoder uses some 90 streams, and streams that share a hardware
            # queue wait for each other: with the default of 8 queues resnet50 trained at 74 % of its speed
            # on synthetic data, with 32 at 97 % (one H200).
            os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
        repeat(job, channel, started)
    except LostRank:
        status = STRANDED
    except BaseException as error:  # noqa: BLE001 - every error is reported to the harness
        traceback.print_exc(file=sys.stderr)
        phase = channel.phase_name
        channel.send("fault", code=_fault_code(error, phase), phase=phase, message=_describe(error))
        status = 1
    else:
        channel.send("done")
        status = 0
    if isinstance(job, Job) and _ends_without_cleanup(job, status):
        sys.stderr.flush()
        os._exit(status)
    return status


def _ends_without_cleanup(job: Job, status: int) -> bool:
    """Whether the rank must end without Python's cleanup, which could wait for the other ranks.

    NCCL waits for the destruction of each graph with its kernels before it frees a communicator, also if it
    aborts (pytorch/pytorch#115388), and the graphs of a rank are frozen: nothing collects them. A rank that
    failed would wait for kernels that wait for it. The driver frees all with the process. JAX waits five
    minutes until all ranks end, also for one that was lost. Frameworks with helper processes take leave of
    these in their cleanup.
    """
    waits = job.device.startswith("cuda") or status == STRANDED
    return waits and job.exchanges and traits_of(job.key.framework).helpers is None


def run_benchmark(job: Job, channel: Channel, started: int) -> None:
    """Run one repeat of a benchmark, or the probe, fingerprint, digests or training that ``job`` asks for.

    ``started`` is the start of the worker (CLOCK_MONOTONIC, ns).
    """
    if job.mode == "batches":
        _send_batch_digests(job, channel)
        return
    channel.phase("import")
    if job.mode == "fingerprint":
        fingerprint.prepare_environment()
    gc.disable()  # imports make half a million objects and hardly any garbage: up to a sixth of their time
    framework_module = workloads.framework_module(job)
    pair_module = workloads.pair_module(job)
    framework_module.Framework.import_rest(job)
    started = channel.begin(started)
    framework = framework_module.Framework(job)
    gc.freeze()  # the collector need not visit them later either
    gc.enable()
    import_ns = monotonic_ns() - started
    facts, reasons = record.facts(framework.describe(), workloads.decoder_of(job))
    channel.send("hello", protocol=PROTOCOL, facts=facts, reasons=reasons)
    group = Group.of(job.rank, channel.configuration.get("peers", ()), job.world_size, job.network)
    if job.mode == "quality":
        train_to_target(job, channel, framework, pair_module, group, import_ns)
        return
    if job.mode == "fingerprint":
        fingerprint.send_fingerprint(job, channel, framework_module, pair_module)
        return
    channel.phase("setup")
    imported_bytes, setup_from = record.peak_rss_bytes(), monotonic_ns()
    data = record.RecordingData(workloads.open_data(job))
    bench = Bench(job, channel, framework, pair_module.Pair(job, framework, data), data, group)
    report = prepare(bench, import_ns, setup_from)
    if job.probe_steps:
        _probe(bench, imported_bytes)
    else:
        measure(bench, report)


def _send_batch_digests(job: Job, channel: Channel) -> None:
    """Send the digests of the first ``job.probe_steps`` batches, without a model, for an auditor."""
    channel.phase("batches")
    data = record.RecordingData(workloads.open_data(job))
    for step in range(job.probe_steps):
        data.batch(step)
    channel.send("batches", digests=data.digests(range(job.probe_steps)))


def prepare(bench: Bench, import_ns: int, setup_from: int) -> dict[str, Any]:
    """Compile and soak, so that the repeat can begin; returns the first fields of its report."""
    with ThreadPoolExecutor(1) as pool:  # models of a gigabyte take a second, most of it without the lock
        initial = pool.submit(digest_arrays, bench.pair.parameters())
        setup_ns = monotonic_ns() - setup_from
        report = {"import_ns": import_ns, "setup_ns": setup_ns, **_compile(bench)}
    return {**report, "initial": initial.result()}


def _compile(bench: Bench) -> dict[str, Any]:
    """Compile by running steps, soak, and restore the initial state."""
    bench.channel.phase("compile")

    def compile_steps() -> None:
        for step in bench.steps_to_compile():
            bench.pair.step(step)
        bench.framework.synchronize()
        bench.pair.collect()

    _, compile_ns = loop.timed(compile_steps)
    bench.channel.phase("soak")
    # With a cold cache the soak must not read the batches of the window, which would be warm then.
    batches = bench.cold_batches if bench.job.key.cache == "cold" else STEPS
    soak_steps, soak = bench.soak(bench.job.soak_ns, batches)
    soak_ns = soak[1] - soak[0] if soak_steps else 0
    bench.pair.reset()
    bench.data.forget()
    return {"compile_ns": compile_ns, "soak_ns": soak_ns, "soak_steps": soak_steps, "spans": {"soak": soak}}


def _probe(bench: Bench, imported_bytes: int) -> None:
    """Use as much memory as a repeat: run its spans and keep all that a repeat keeps until its report."""
    steps = bench.job.probe_steps
    bench.channel.phase("probe")
    span = bench.run_span(0, min(steps, WARMUP_STEPS))
    held: list[Any] = [span, bench.pair.parameters()]
    if steps > WARMUP_STEPS:
        span = bench.run_span(WARMUP_STEPS, steps - WARMUP_STEPS)
        held += [span, bench.pair.parameters()]
    peak = record.peak_rss_bytes()  # while everything is kept
    bench.channel.send(
        "probed", peak_rss_bytes=peak, imported_bytes=imported_bytes, spans=len(held) // 2, span_ns=span.ns
    )


def measure(bench: Bench, report: dict[str, Any]) -> None:
    """Run warm-up, window and telemetry tail, and send the report, which ``report`` begins."""
    channel, pair = bench.channel, bench.pair
    gc.collect()
    gc.freeze()
    gc.disable()
    channel.phase("warmup")
    warmup = bench.run_span(0, WARMUP_STEPS)
    scaling_before = record.scaling(bench.framework)
    at_ten = pair.parameters()
    _require_room(bench, warmup)
    threads_before = record.thread_count()
    read_from, wait_from = children.read_bytes(), bench.data.wait_ns
    channel.phase("window")
    channel.send("window_open")
    channel.wait("go")
    barrier = SpanBarrier(bench.group) if bench.job.world_size > 1 else None
    cpu_from = children.cpu_time_ns()
    window = bench.run_span(WARMUP_STEPS, bench.job.measured_steps, barrier)
    # Rank 0 times the repeat: with other ranks, from before their release until all have their results.
    timed: Any = window if barrier is None else barrier
    # Sent first: reading the times of a loader's processes, which live on, would delay the receipt.
    channel.send("window_close", open_ns=timed.open_ns, close_ns=timed.close_ns)
    cpu_ns = children.cpu_time_ns() - cpu_from
    wait_ns = bench.data.wait_ns - wait_from
    threads_after = record.thread_count()
    gc.enable()
    channel.wait("tail")  # until the harness has read its counters, which must not include what follows
    report |= {"cpu_time_ns": cpu_ns, "input_wait_ns": wait_ns, "warmup_ns": warmup.ns}
    report |= {"threads": {"before": threads_before, "after": threads_after}}
    report |= {"storage_bytes": _difference(read_from, children.read_bytes())}
    report |= record.loss_scale(scaling_before, record.scaling(bench.framework))
    with ThreadPoolExecutor() as pool:  # models of a gigabyte take seconds
        final, step_10 = (pool.submit(digest_arrays, one) for one in (pair.parameters(), at_ten))
        channel.phase("tail")
        report["tail_steps"], report["spans"]["tail"] = bench.soak(bench.job.tail_ns)
        channel.phase("report")
        channel.send("steps", **_steps(bench, warmup, window))
    report |= {"final": final.result(), "step_10": step_10.result()}
    report |= bench.closing_fields()
    channel.send("repeat_end", **report, **_state(bench, window))
    if bench.job.exchanges and bench.job.repeat == 0:  # last: it would raise the peak of memory
        channel.phase("sweep")
        device = bench.job.device.partition(":")[0]
        channel.send("exchange_sweep", **sweep(bench.framework.exchange, device, bench.group.decide))
        bench.group.decide(True)  # no rank ends while another one may read its memory


def _require_room(bench: Bench, warmup: loop.Span) -> None:
    """MemoryError if the outputs of a long window would take more than ``KEPT_OUTPUTS`` of host memory."""
    steps = bench.job.measured_steps
    size = sum(result.nbytes for result in warmup.results) // max(1, len(warmup.results)) * steps
    if steps > MEASURED_STEPS and size > KEPT_OUTPUTS:
        raise MemoryError(
            f"steps: expected outputs of at most {KEPT_OUTPUTS >> 20} MiB together, which are kept until the "
            f"end of the window, found {size >> 20} MiB for {steps} steps; take fewer STEPS"
        )


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _steps(bench: Bench, warmup: loop.Span, window: loop.Span) -> dict[str, Any]:
    results = warmup.results + window.results
    if len(results) != (steps := bench.job.steps):
        raise RuntimeError(f"collect(): expected {steps} results, one for each step, found {len(results)}")
    known = warmup.arrivals is not None and window.arrivals is not None
    return {
        "timestamps": warmup.timestamps + window.timestamps,
        "dispatched": warmup.dispatched + window.dispatched,
        "arrivals": [*(warmup.arrivals or ()), *(window.arrivals or ())] if known else None,
        **bench.columns(results),
    }


def _gradient_norms(bench: Bench) -> list[str | None] | None:
    """One norm per step; None for a step whose gradients are not finite, such as skipped steps in fp16."""
    norms = [float(norm) for norm in bench.pair.gradient_norms()]
    if len(norms) != bench.job.steps:
        return None
    return [norm.hex() if math.isfinite(norm) else None for norm in norms]


def _state(bench: Bench, window: loop.Span) -> dict[str, Any]:
    single = bench.job.key.scenario == "single_stream"
    arrivals = bench.framework.arrivals
    return {
        **({} if arrivals is None else {"exchange_clock": arrivals.clock()}),
        "timestamp_kind": "host_completion" if single else bench.framework.timestamp_kind,
        "window": {"open_ns": window.open_ns, "close_ns": window.close_ns, "collect_ns": window.collect_ns},
        "memory": {"peak_rss_bytes": record.peak_rss_bytes(), **bench.framework.memory()},
        "dtypes": bench.framework.dtypes(),
        "modules_digest": record.modules_digest(),
    }


def _fault_code(error: BaseException, phase: str) -> str:
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, MemoryError) or any(phrase in text for phrase in _OUT_OF_MEMORY):
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
    """An error and what it was raised from, each as type and first line, without paths.

    The log must not contain folders of the machine.
    """
    text = _first_line(error)
    if error.__cause__ is not None and (cause := _first_line(error.__cause__)) not in text:
        text += f" (from {cause})"
    return text[:500]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    message = lines[-1] if lines[0].startswith("Traceback") else lines[0]  # MXNet prints its stack first
    in_dataset = isinstance(error, BadData)  # names files within the dataset: only absolute paths are hidden
    text = " ".join(
        "<path>" if "/" in (part[:1] if in_dataset else part) else part for part in message.split()
    )
    return f"{type(error).__name__}: {text}"
