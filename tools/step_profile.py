"""Where the time of a step in PyTorch goes on a GPU: its kernels by kind, from a profile of the suite's pair.

    python -m tools.step_profile --workload resnet50 --batch 256 [--phase infer] [--top 15]

Builds the pair as a worker does and replays its captured steps under ``torch.profiler``. Prints one line of
JSON: milliseconds of a step, the share of them in which the GPU is busy, and milliseconds and number of the
kernels of each kind; then a table of the longest kernels. The profiler slows short steps: take shares. Run it
in an interpreter with PyTorch for CUDA and the suite's requirements of workers.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.exposed_exchange import ON_DEVICE, job_of, length, model_options, print_line, trace_of, union

# Kinds by the names of kernels, in this order: pointwise kernels of cuDNN's LSTM have parameters that name
# cuDNN, and kernels of torch.compile are named for what they fuse.
KINDS = {
    "recurrence": r"lstm|rnn",
    "pointwise and reductions": r"triton_|elementwise|reduce|softmax|multi_tensor|vectorized|batch_norm|bn_",
    "convolutions and products": r"conv|gemm|xmma|cutlass|cudnn|nvjet|cublas|wgrad|dgrad|fprop|implicit",
    "copies": r"memcpy|memset|copy",
}
STEPS = 20


def kind_of(event: Mapping[str, Any]) -> str:
    """The kind of one kernel or copy."""
    name = str(event["name"]).lower()
    if event["cat"] != "kernel":
        return "copies"
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other")


def profiled(trace: Mapping[str, Any], steps: int) -> tuple[dict[str, Any], Counter[str], Counter[str]]:
    """The figures of a step, and by kernel: its microseconds and its number in all ``steps`` steps."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ON_DEVICE]
    if not events:
        raise SystemExit("step_profile: expected kernels in the trace, found none: is this a GPU?")
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for event in events:
        times[event["name"]] += event["dur"]
        calls[event["name"]] += 1
        kind = kind_of(event)
        kinds[kind] += event["dur"]
        number[kind] += 1
    whole = union((event["ts"], event["ts"] + event["dur"]) for event in events)
    span = whole[-1][1] - whole[0][0]
    found: dict[str, Any] = {"step_ms": span / steps / 1e3, "busy_share": length(whole) / span}
    found["kinds"] = {
        kind: {"ms": total / steps / 1e3, "kernels": number[kind] / steps}
        for kind, total in kinds.most_common()
    }
    return found, times, calls


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    model_options(parser)
    parser.set_defaults(devices=1, device="cuda", collective="nccl", bucket_mib=0)
    parser.add_argument("--phase", choices=("train", "infer"), default="train")
    parser.add_argument("--top", type=int, default=15, help="kernels in the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        job = job_of(options, folder)
        job = replace(job, key=replace(job.key, phase=options.phase), device="cuda:0")
        trace = trace_of(job, STEPS, Path(folder) / "trace.json")
    found, times, calls = profiled(trace, STEPS)
    print_line(job, found)
    for name, total in times.most_common(options.top):
        print(f"{total / STEPS / 1e3:9.3f} ms {calls[name] / STEPS:7.1f}  {name[:110]}")
    sys.stdout.flush()
    os._exit(0)  # as a worker: the interpreter's end would wait for the captured graphs


if __name__ == "__main__":
    main()
