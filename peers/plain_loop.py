"""The timed loop of the scripts that also run alone, with or without a GPU."""

from __future__ import annotations

import argparse
import json
import time

import torch

from peers.plain import Plain
from suite.contract import STEPS, WARMUP_STEPS, Job, Key
from suite.workloads import specification

SOAK_SECONDS = 5.0


def arguments(description: str, workload: str) -> argparse.Namespace:
    """The options common to these scripts."""
    spec = specification(workload)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--phase", choices=("train", "infer"), default="train")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--scale", choices=tuple(spec.VARIANTS), default="reference")
    parser.add_argument("--variant")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--soak", type=float, default=SOAK_SECONDS, help="untimed seconds before the warm-up")
    return parser.parse_args()


def job_of(workload: str, options: argparse.Namespace) -> Job:
    """The suite's job whose synthetic batches the peer computes."""
    spec = specification(workload)
    variant = options.variant or spec.VARIANTS[options.scale][0]
    batch = options.batch or spec.BATCHES[options.scale][0]
    phase, precision, scale = options.phase, options.precision, options.scale
    key = Key(workload, "pytorch", phase, "offline", precision, batch, 1, scale, "synthetic", "warm", variant)
    hyper = spec.hyperparameters(scale, variant)
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    return Job(key, "throughput", 1, 0, hyper, device, torch.get_num_threads(), True, 0, 0, "", "")


def time_steps(plain: Plain, job: Job, options: argparse.Namespace) -> None:
    """Soak, warm up, time 100 steps, print one JSON line."""
    units, step = specification(job.key.workload).units(job.key, 1), plain.step
    until, done = time.perf_counter() + options.soak, 0
    while time.perf_counter() < until or done < STEPS // 10:
        step(done % STEPS)
        done += 1
        plain.synchronize()
    for index in range(WARMUP_STEPS):
        step(index)
    plain.synchronize()
    start = time.perf_counter()
    outputs = [step(index) for index in range(WARMUP_STEPS, STEPS)]
    plain.synchronize()
    seconds = time.perf_counter() - start
    facts: dict[str, object] = {"peer": f"{job.key.workload}_plain", "phase": job.key.phase}
    facts |= {"precision": job.key.precision, "batch": job.key.batch, "compile": options.compile}
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    rate = {"units_per_s": sum(units[WARMUP_STEPS:]) / seconds, "window_s": seconds}
    last = float(plain.fetch(outputs[-1]).mean())
    print(json.dumps({"facts": facts, **rate, "peak_bytes": peak, "last": last}))
