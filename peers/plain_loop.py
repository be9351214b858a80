"""The plain timed loop that both peers share."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence

import torch

from suite.workloads import specification
from suite.workloads.contract import STEPS, WARMUP_STEPS, Job, Key

SOAK_SECONDS = 5.0


def arguments(description: str, workload: str) -> argparse.Namespace:
    """Options common to the peers."""
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


def set_precision(precision: str) -> torch.dtype | None:
    """TF32 on or off; the autocast type for bf16."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch.bfloat16 if precision == "bf16" else None


def time_steps(step: Callable[[int], torch.Tensor], units: Sequence[int], soak: float, facts: object) -> None:
    """Soak, warm up, time 100 steps, print one JSON line."""
    sync = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    until, done = time.perf_counter() + soak, 0
    while time.perf_counter() < until or done < STEPS // 10:
        step(done % STEPS)
        done += 1
        sync()
    for index in range(WARMUP_STEPS):
        step(index)
    sync()
    start = time.perf_counter()
    outputs = [step(index) for index in range(WARMUP_STEPS, STEPS)]
    sync()
    seconds = time.perf_counter() - start
    total = sum(units[WARMUP_STEPS:])
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    last = float(outputs[-1].float().mean())
    rate = {"units_per_s": total / seconds, "window_s": seconds}
    print(json.dumps({"facts": facts, **rate, "peak_bytes": peak, "last": last}))
