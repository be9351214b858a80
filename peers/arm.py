"""One process of a comparison: the suite's pair or the plain script, over the same batches.

    python -m peers.arm theirs --workload lstm_ptb --framework pytorch --scale mini --seconds 3

Prints one JSON line: units, wall and processor seconds of the measured steps, from a drained device to a
drained device, and the processor seconds of all other processes of the machine. The pair runs in the suite's
timing loop, timestamps included, the plain script in the loop below. Both copy losses or outputs to the host
within the measured time.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from peers.cases import FRAMEWORKS, OURS, SIDES, module_of
from peers.plain import Plain
from suite import workloads
from suite.contract import STEPS, WARMUP_STEPS, Job, Key
from suite.worker import loop

MIN_STEPS, MAX_STEPS = 3, 100


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """Seconds of the measured steps: wall time, and processor time of this and of all other processes."""

    wall: float
    cpu: float
    others: float | None  # None where the kernel does not report it


def job_of(options: argparse.Namespace) -> Job:
    """The job whose batches both sides compute: synthetic without ``--data-dir`` (the folder of a text)."""
    spec = workloads.specification(options.workload)
    variant = options.variant or spec.VARIANTS[options.scale][0]
    batch = options.batch or spec.BATCHES[options.scale][0]
    data = "real" if options.data_dir else "synthetic"
    key = Key(options.workload, options.framework, options.phase, "offline", options.precision, batch, 1,
              options.scale, data, "warm", variant)  # fmt: skip
    hyper = spec.hyperparameters(options.scale, variant)
    return Job(
        key, "throughput", 1, 0, hyper, options.device, options.threads, True, 0, 0, options.data_dir, ""
    )


def ours(job: Job) -> tuple[Callable[[int, int], Any], int]:
    """(a function that runs ``steps`` steps from ``first`` on, trainable parameters) of the suite's pair."""
    framework = workloads.framework_module(job).Framework(job)
    data = workloads.open_data(job)
    pair = workloads.pair_module(job).Pair(job, framework, data)
    spec = workloads.specification(job.key.workload)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    count = sum(parameter.size for parameter in spec.parameters(dims))
    return lambda first, steps: loop.run_span(pair, framework, first, steps), count


def theirs(job: Job) -> tuple[Callable[[int, int], Any], int]:
    """The same for the plain script."""
    plain: Plain = import_module(module_of(job.key.workload, job.key.framework)).make(job)

    def run(first: int, steps: int) -> list[Any]:
        plain.synchronize()
        outputs = [plain.step(index) for index in range(first, first + steps)]
        plain.synchronize()
        return [plain.fetch(output) for output in outputs]

    return run, plain.parameters


def machine_cpu() -> float | None:
    """Busy seconds of all processors of the machine; None where the kernel does not report them."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _wait, hard, soft, steal = (int(field) for field in first[1:9])
    return (user + nice + system + hard + soft + steal) / os.sysconf("SC_CLK_TCK")


def timed(run: Callable[[int, int], Any], first: int, steps: int) -> tuple[SpanTimes, Any]:
    """The times of ``steps`` steps from ``first`` on, and their results."""
    gc.collect()
    gc.disable()
    machine, cpu, wall = machine_cpu(), time.process_time(), time.perf_counter()
    results = run(first, steps)
    wall, cpu, after = time.perf_counter() - wall, time.process_time() - cpu, machine_cpu()
    gc.enable()
    others = None if machine is None or after is None else max(0.0, after - machine - cpu)
    return SpanTimes(wall, cpu, others), results


def measured_steps(step_seconds: float, seconds: float) -> int:
    """The number of steps that takes about ``seconds``, within the limits of a window."""
    return min(MAX_STEPS, max(MIN_STEPS, math.ceil(seconds / step_seconds)))


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--workload", required=True, choices=workloads.names())
    parser.add_argument("--framework", required=True, choices=FRAMEWORKS)
    parser.add_argument("--phase", choices=("train", "infer"), default="train")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--scale", choices=("reference", "mini"), default="reference")
    parser.add_argument("--variant")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--data-dir", default="", help="folder of a text to read (default: synthetic batches)"
    )
    parser.add_argument("--steps", type=int, default=0, help="measured steps (default: as many as --seconds)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="approximate measured time, without --steps"
    )
    parser.add_argument("--soak", type=float, default=0.0, help="untimed seconds before the warm-up")
    options = parser.parse_args(arguments)
    if not 0 <= options.steps <= STEPS:  # so many have batches
        parser.error(f"--steps: expected at most {STEPS}, found {options.steps}")
    return options


def main() -> None:
    """Warm up, measure, print."""
    options = options_of()
    job = job_of(options)
    run, parameters = (ours if options.side == OURS else theirs)(job)
    run(0, 1)  # compiles, if anything is compiled
    until = time.perf_counter() + options.soak
    while time.perf_counter() < until:
        run(0, WARMUP_STEPS)
    warmup_steps = WARMUP_STEPS - 1
    warmup, _ = timed(run, 1, warmup_steps)
    undisturbed = min(warmup.wall, warmup.cpu / job.threads) if job.device == "cpu" else warmup.wall
    steps = options.steps or measured_steps(undisturbed / warmup_steps, options.seconds)
    first = min(WARMUP_STEPS, STEPS - steps)
    times, span = timed(run, first, steps)
    units = workloads.specification(job.key.workload).units(job.key, job.seed)[first : first + steps]
    results = getattr(span, "results", span)
    report = {
        "side": options.side,
        "steps": steps,
        "units": sum(units),
        "units_per_s": sum(units) / times.wall,
        "wall_s": times.wall,
        "cpu_s": times.cpu,
    }
    report |= {"others_s": times.others, "parameters": parameters, "last": float(results[-1].mean())}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
