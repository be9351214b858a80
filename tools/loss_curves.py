"""Curves of the loss of untimed trainings for ``tools.loss_bands``: ``python -m tools.loss_curves WORKLOAD``.

For a batch or precision without a published result: workers train the steps of a repeat in PyTorch with the
weights, batches and hyperparameters of the rules, without the fast path. Every training, in every precision,
has another seed. Prints one line of JSON for each training when it ends.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path

from suite import workloads
from suite.checker.training import curve
from suite.contract import BENCHMARK, Key
from suite.contract.seeds import seed_of
from suite.contract.traits import reference_framework
from suite.harness.worker_process import WorkerFailure
from tools.one_worker import HOURS_S, WorkerLocation, configured_worker

_SCALE, _DATA = "reference", "synthetic"


def losses(key: Key, seed: int, location: WorkerLocation) -> list[float]:
    """The loss of every step of one repeat; WorkerFailure if it does not complete."""
    spec = workloads.specification(key.workload)
    job = {
        "kind": BENCHMARK,
        "key": asdict(key),
        "mode": "throughput",
        "seed": seed,
        "repeat": 0,
        "hyper": spec.hyperparameters(key.scale, key.variant),
        "fast": False,
        "soak_ns": 0,
        "tail_ns": 0,
        "data_dir": "",
    }
    with configured_worker(key.framework, location, job) as worker:
        for event, answer in (("window_open", "go"), ("window_close", "tail")):
            worker.expect(event, HOURS_S)
            worker.command(answer)
        steps, _ = worker.expect("steps", HOURS_S)
        worker.expect("repeat_end", HOURS_S)
    return [float.fromhex(loss) for loss in steps["losses"]]


def main() -> int:
    """See the module. Failed trainings are reported on stderr and counted in the exit code."""
    options = _options()
    spec = workloads.specification(options.workload)
    variant = options.variant or spec.VARIANTS[_SCALE][0]
    location = WorkerLocation(options.device, options.threads, options.python)
    batches = options.batches or [spec.BATCHES[_SCALE][0]]
    failures = 0
    for batch, precision, number in product(batches, options.precisions, options.seeds):
        how = (precision, batch, 1, _SCALE, _DATA, "warm", variant)
        key = Key(options.workload, reference_framework(), "train", "offline", *how)
        seed = seed_of(None, f"loss curves, {precision}", number)
        try:
            found = curve(losses(key, seed, location), spec.units(key, seed))
        except WorkerFailure as failure:  # such as a batch that is too large for this device
            failures += 1
            print(f"{key.workload}, batch {batch}, {precision}: {failure}", file=sys.stderr)
            continue
        print(json.dumps({"key": asdict(key), "seed": seed, "curve": found}), flush=True)
    return min(failures, 100)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Curves of the loss from untimed trainings.")
    parser.add_argument("workload", choices=workloads.names())
    parser.add_argument("--variant", default="", help="of the reference scale (its first)")
    parser.add_argument("--batches", type=_numbers, default=[], help="separated by commas (closed's first)")
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["bf16", "tf32", "fp32"])
    parser.add_argument("--seeds", type=_numbers, default=list(range(5)), help="their numbers (0,1,2,3,4)")
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument(
        "--python", type=lambda text: Path(text).absolute(), help="an interpreter with PyTorch (the suite's)"
    )
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
