"""Bands of the loss (rule TRAIN-009) from untimed trainings: ``python -m tools.loss_curves WORKLOAD``.

For a workload that no published result settles yet: workers train the steps of a repeat in PyTorch, from the
weights, on the batches and with the hyperparameters of the rules, without the fast path, each with a seed of
its own. Prints the rows of ``loss_curve``, as ``tools.loss_bands`` does for results. Nothing is written: a
person puts them into the rules.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite import workloads
from suite.checker.learning import curve
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.record.seeds import seed_of
from suite.runtime import environments
from suite.runtime.workers import NativeWorkers
from suite.workloads.contract import Key
from tools.loss_bands import rows

_SCALE, _DATA = "reference", "synthetic"
_HOURS_S = 4 * 3600.0


def losses(options: argparse.Namespace, key: Key, seed: int) -> list[float]:
    """The loss of every step of one repeat; WorkerFailure where it does not come to its end."""
    spec = workloads.specification(key.workload)
    job = {
        "key": asdict(key),
        "mode": "throughput",
        "seed": seed,
        "repeat": 0,
        "hyper": spec.hyperparameters(key.scale, key.variant),
        "device": options.device,
        "threads": options.threads,
        "fast": False,
        "soak_ns": 0,
        "tail_ns": 0,
        "data_dir": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        visible = "" if options.device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES")
        command = NativeWorkers(options.python, options.threads, "passive", visible).command(0, scratch, None)
        with WorkerProcess(command, Path(folder, "debug.log")) as worker:
            worker.configure(job | {"scratch_dir": str(scratch)})
            for event, answer in (("hello", ""), ("window_open", "go"), ("window_close", "tail")):
                worker.expect(event, _HOURS_S)
                if answer:
                    worker.command(answer)
            steps, _ = worker.expect("steps", _HOURS_S)
            worker.expect("repeat_end", _HOURS_S)
            worker.expect("done", _HOURS_S)
    return [float.fromhex(loss) for loss in steps["losses"]]


def settled(options: argparse.Namespace, batch: int) -> tuple[list[dict[str, Any]], int]:
    """The rows of ``loss_curve`` of one batch, and how many precisions could not be trained in."""
    name = options.workload
    spec = workloads.specification(name)
    variant = options.variant or spec.VARIANTS[_SCALE][0]
    curves, failures = {}, 0
    for precision in options.precisions:
        key = Key(name, "pytorch", "train", "offline", precision, batch, 1, _SCALE, _DATA, "warm", variant)
        seeds = [seed_of(None, "loss curves", repeat) for repeat in range(options.repeats)]
        try:
            curves[precision] = [curve(losses(options, key, seed), spec.units(key, seed)) for seed in seeds]
        except WorkerFailure as failure:  # a batch too large for this device spoils no other row
            failures += 1
            print(f"{name}, batch {batch}, {precision}: {failure}", file=sys.stderr)
    return rows(variant, batch, _DATA, curves), failures


def main() -> int:
    """See the module. A row that cannot be made is told on stderr; the exit status counts them."""
    options = _options()
    batches = options.batches or [workloads.specification(options.workload).BATCHES[_SCALE][0]]
    told = [settled(options, batch) for batch in batches]
    print(json.dumps({f"{_SCALE}/{options.workload}": [row for found, _ in told for row in found]}, indent=2))
    return min(sum(failures for _, failures in told), 100)


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description="Bands of the loss from untimed trainings.")
    words.add_argument("workload", choices=workloads.names())
    words.add_argument("--variant", default="", help="of the reference scale (its first)")
    words.add_argument("--batches", type=_numbers, default=[], help="separated by commas (closed's first)")
    words.add_argument("--precisions", type=lambda text: text.split(","), default=["bf16", "tf32", "fp32"])
    words.add_argument("--repeats", type=int, default=5, help="how many seeds (5)")
    words.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    words.add_argument("--threads", type=int, default=4)
    words.add_argument(
        "--python", type=lambda text: Path(text).absolute(), help="an interpreter with PyTorch (the suite's)"
    )
    options = words.parse_args()
    if options.python is None:
        kind = "cpu" if options.device == "cpu" else "gpu"
        options.python = environments.plan("pytorch", kind).python
    return options


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
