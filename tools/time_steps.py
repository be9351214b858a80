"""The time of training steps alone, without the run rules: for experiments with the exchange of gradients.

    python -m tools.time_steps --workload vgg16 --devices 2 --collective copy_engine
    python -m tools.time_steps --workload vgg16 --devices 2 --set copy_engines.CHUNK=8388608

One process per device builds the suite's pair in PyTorch, as a worker does, and runs windows of steps between
barriers. Prints one JSON line per rank: milliseconds of a step, by window. ``--devices 1`` exchanges nothing:
N times its speed is what N devices can reach. ``--set`` changes a constant of ``suite.frameworks.pytorch``.
Run it in an interpreter with PyTorch for CUDA and the suite's requirements of workers.
"""

from __future__ import annotations

import argparse
import ast
import os
import statistics
import tempfile
from collections.abc import Sequence
from importlib import import_module
from time import monotonic_ns
from typing import Any

from suite import workloads
from suite.contract import WARMUP_STEPS, Job
from tools.exposed_exchange import job_of, job_options, of_rank, print_line


def change(constants: Sequence[str]) -> None:
    """Set each ``module.NAME=value``, where the module is one of ``suite.frameworks.pytorch``."""
    for constant in constants:
        path, _, value = constant.partition("=")
        name, _, attribute = path.rpartition(".")
        module = import_module(f"suite.frameworks.pytorch.{name}")
        if not hasattr(module, attribute):
            raise SystemExit(f"--set: expected a constant of {module.__name__}, found {attribute}")
        setattr(module, attribute, ast.literal_eval(value))


def measure(rank: int, job: Job, windows: int, steps: int, constants: Sequence[str]) -> None:
    """One rank: build the pair, warm up, time the windows and print the result."""
    job = of_rank(job, rank)
    change(constants)
    started = monotonic_ns()
    framework: Any = workloads.framework_module(job).Framework(job)
    pair: Any = workloads.pair_module(job).Pair(job, framework, workloads.open_data(job))
    distributed: Any = import_module("torch.distributed")
    on_host = distributed.new_group(backend="gloo") if job.world_size > 1 else None

    def run(first: int, count: int) -> float:
        """Milliseconds of a step."""
        if on_host is not None:
            distributed.barrier(on_host)
        begun = monotonic_ns()
        for index in range(first, first + count):
            pair.step(index)
        framework.synchronize()
        if on_host is not None:
            distributed.barrier(on_host)
        return (monotonic_ns() - begun) / count / 1e6

    run(0, WARMUP_STEPS)
    pair.collect()
    ready = (monotonic_ns() - started) / 1e9
    times = []
    for window in range(windows):
        times.append(run(WARMUP_STEPS + window * steps, steps))
        pair.collect()
    measured = {"ready_s": ready, "median_ms": statistics.median(times), "windows_ms": times}
    print_line(job, {"set": list(constants), **measured})
    os._exit(0)  # as a worker: NCCL's cleanup would wait for the captured graphs


def main() -> None:
    """Start the ranks; the first that fails ends all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    job_options(parser)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--steps", type=int, default=100, help="of a window")
    parser.add_argument("--set", action="append", default=[], metavar="MODULE.NAME=VALUE", dest="constants")
    options = parser.parse_args()
    change(options.constants)  # an error appears once, before the ranks start
    with tempfile.TemporaryDirectory(prefix="steps-") as folder:
        job = job_of(options, folder)
        arguments = job, options.windows, options.steps, options.constants
        import_module("torch.multiprocessing").spawn(measure, arguments, nprocs=options.devices)


if __name__ == "__main__":
    main()
