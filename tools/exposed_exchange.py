"""The time of an exchange of gradients that no computation hides, from a profile of the suite's pair on GPUs.

    python -m tools.exposed_exchange --workload resnet50 --batch 256 --devices 2 --out DIR

One process per device builds the suite's pair, as a worker does, and replays its captured steps under
``torch.profiler``. Prints one JSON line per rank and keeps the traces in ``--out``. Run it in an interpreter
with PyTorch for CUDA and the suite's requirements of workers.

A kernel of NCCL runs from its launch to its end, waiting for other ranks included. ``exposed`` is the time in
which kernels of NCCL, or copies and signals of ``--collective copy_engine``, run and nothing else runs on
that device; the smallest of the ranks is the exchange itself, what the others have more is waiting. Additions
of copied gradients count as computation. The profiler slows the steps: take the share, not the time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from suite import workloads
from suite.contract import WARMUP_STEPS, Job, Key

Interval = tuple[float, float]  # start and end

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of Kineto's events
EXCHANGE = "nccl", "symmetric_memory", "PtoP"  # in the names of NCCL's kernels, of signals, and of copies
STEPS = 10


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as disjoint intervals, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """The total of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The times in both of two lists of disjoint intervals in order."""
    found, at, other = [], 0, 0
    while at < len(first) and other < len(second):
        start = max(first[at][0], second[other][0])
        end = min(first[at][1], second[other][1])
        if start < end:
            found.append((start, end))
        if first[at][1] < second[other][1]:
            at += 1
        else:
            other += 1
    return found


def exposed(trace: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Microseconds of a step, of its exchange and of its exposed part, and that part's share of the step.

    ``trace`` is Kineto's of one rank, whose device runs nothing but ``steps`` steps. The step is the time
    from the first kernel to the end of the last one, divided. Without exchange: all None, with a ``reason``.
    """
    exchange: list[Interval] = []
    others: list[Interval] = []
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in ON_DEVICE:
            kind = exchange if any(name in event["name"] for name in EXCHANGE) else others
            kind.append((event["ts"], event["ts"] + event["dur"]))
    names = ("step_us", "exchange_us", "exposed_us", "exposed_share")
    if not exchange:
        reason = f"expected an exchange, found none among {len(others)} events of the device"
        return {**dict.fromkeys(names), "reason": reason}
    of_exchange, of_others = union(exchange), union(others)
    whole = union([*exchange, *others])
    alone = length(of_exchange) - length(common(of_exchange, of_others))
    total = whole[-1][1] - whole[0][0]
    values = (total / steps, length(of_exchange) / steps, alone / steps, alone / total)
    return dict(zip(names, values, strict=True))


def job_of(options: argparse.Namespace, folder: str) -> Job:
    """The job of rank 0."""
    spec = workloads.specification(options.workload)
    variant = options.variant or spec.VARIANTS[options.scale][0]
    batch = options.batch or spec.BATCHES[options.scale][0]
    key = Key(
        *(options.workload, "pytorch", "train", "offline", options.precision, batch, options.devices),
        *(options.scale, "synthetic", "warm", variant),
        strategy="allreduce",
    )
    cuda = options.device == "cuda"
    hyper = spec.hyperparameters(options.scale, variant)
    return Job(
        *(key, "throughput", 1, 0, hyper, options.device, 4 if cuda else 1, True, 0, 0, "", folder),
        world_size=options.devices,
        collective=options.collective if cuda else "gloo",
        bucket_mib=options.bucket_mib,
    )


def of_rank(job: Job, rank: int) -> Job:
    """The job of ``rank``, with its device."""
    device = job.device if job.device == "cpu" else f"{job.device}:{rank}"
    return replace(job, device=device, rank=rank, local_rank=rank)


def print_line(job: Job, found: Mapping[str, Any]) -> None:
    """Print what a rank found as one line of JSON, in one piece: other ranks print at the same time."""
    facts = {
        "workload": job.key.workload,
        "batch": job.key.batch,
        "devices": job.world_size,
        "rank": job.rank,
    }
    sys.stdout.write(json.dumps({**facts, **found}) + "\n")
    sys.stdout.flush()


def trace_of(job: Job, steps: int, path: Path, begin: Callable[[], None] | None = None) -> dict[str, Any]:
    """The trace of ``steps`` steps of the pair of ``job``, built and warmed up as in a worker.

    It stays in ``path``. ``begin`` is called in the profile, before the first step.
    """
    framework: Any = workloads.framework_module(job).Framework(job)
    profiler: Any = import_module("torch.profiler")
    kinds = [profiler.ProfilerActivity.CPU]
    if job.device != "cpu":
        kinds.append(profiler.ProfilerActivity.CUDA)
    with profiler.profile(activities=kinds):  # CUPTI sees the kernels of graphs that are captured after this
        framework.synchronize()
    pair: Any = workloads.pair_module(job).Pair(job, framework, workloads.open_data(job))

    def run(first: int, count: int) -> None:
        for index in range(first, first + count):
            pair.step(index)
        framework.synchronize()

    run(0, WARMUP_STEPS)
    pair.collect()
    with profiler.profile(activities=kinds) as profiled:
        if begin is not None:
            begin()
        run(WARMUP_STEPS, steps)
    profiled.export_chrome_trace(str(path))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def profile(rank: int, job: Job, out: str) -> None:
    """One rank: warm up, profile ``STEPS`` steps, write the trace and print its result."""
    job = of_rank(job, rank)
    distributed: Any = import_module("torch.distributed")

    def meet() -> None:
        """Without this the first exchange would wait for the other rank's profiler."""
        distributed.barrier(distributed.new_group(backend="gloo"))

    trace = trace_of(job, STEPS, Path(out) / f"{job.key.workload}-rank-{rank}.json", meet)
    print_line(job, exposed(trace, STEPS))
    os._exit(0)  # as a worker: NCCL's cleanup would wait for the captured graphs


def model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`job_of` that name the model."""
    parser.add_argument("--workload", required=True, choices=workloads.names())
    parser.add_argument("--batch", type=int)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--scale", choices=("reference", "mini"), default="reference")
    parser.add_argument("--variant")


def job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`job_of` reads."""
    model_options(parser)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--collective", choices=("nccl", "copy_engine"), default="nccl")
    parser.add_argument(
        "--bucket-mib", type=int, default=0, help="MiB of gradients exchanged together; 0: PyTorch's 25"
    )


def main() -> None:
    """Start the ranks; the first that fails ends all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    job_options(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the traces")
    options = parser.parse_args()
    if options.devices < 2:
        parser.error("--devices: expected 2 or more: one device exchanges nothing (see tools.step_profile)")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="exchange-") as folder:
        arguments = job_of(options, folder), str(options.out)
        import_module("torch.multiprocessing").spawn(profile, arguments, nprocs=options.devices)


if __name__ == "__main__":
    main()
