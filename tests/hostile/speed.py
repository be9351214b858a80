"""The checker's speed, alone and beside MLPerf's: ``python -m tests.hostile.speed``.

    python -m venv peer && peer/bin/pip install mlperf-logging==4.1.68
    python -m tests.hostile.speed --logs 1000 --peer peer/bin/python

Each of our logs has a training log of MLPerf's of the same size beside it, which its checker accepts
(RetinaNet, rules 5.1.0, filled up with the tracked statistics that such logs are full of). The two take
turns, log by log: ours is a question to one long-lived child, theirs the command that their users run. On a
machine that others use too, processor time is more conclusive than wall time; both are printed.

The logs are made ones, of a practice run on a CPU; with ``--results submissions`` those of real results.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from suite.checker.sandboxed import CHECK_TASKS, check_in
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.good_log import Good, write_good

DISTINCT = 20
RULESET = "5.1.0"
_MB = 1e6


class Taken(NamedTuple):
    """Seconds of wall time and of processor time."""

    wall: float
    processor: float


def peer_log(size: int) -> str:
    """A training log of MLPerf with ``size`` bytes or a line more, which its checker accepts."""
    lines: list[str] = []

    def log(key: str, value: Any, kind: str = "POINT_IN_TIME", **metadata: Any) -> int:
        event = {
            "namespace": "",
            "time_ms": 1_795_000_000_000 + len(lines),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": "/workspace/train.py", "lineno": 100, **metadata},
        }
        lines.append(":::MLLOG " + json.dumps(event) + "\n")
        return len(lines[-1])

    once = {
        "submission_benchmark": "retinanet", "submission_org": "an org", "submission_division": "closed",
        "submission_status": "onprem", "submission_platform": "a platform", "gradient_accumulation_steps": 1,
        "global_batch_size": 256, "opt_name": "adam", "opt_base_learning_rate": 1e-4, "opt_weight_decay": 0.0,
        "opt_learning_rate_warmup_epochs": 1, "opt_learning_rate_warmup_factor": 1e-3,
        "train_samples": 1170301, "eval_samples": 24781, "seed": 1,
    }  # fmt: skip
    total = log("cache_clear", True) + log("init_start", None, "INTERVAL_START")
    total += sum(log(key, value) for key, value in once.items())
    total += log("init_stop", None, "INTERVAL_END") + log("run_start", None, "INTERVAL_START")
    total += log("epoch_start", None, "INTERVAL_START", epoch_num=1)
    while total < size - 1000:
        total += log("tracked_stats", {"loss": 0.6931471805599453, "throughput": 1234.5}, step=len(lines))
    log("epoch_stop", None, "INTERVAL_END", epoch_num=1)
    log("eval_start", None, "INTERVAL_START", epoch_num=1)
    log("eval_accuracy", 0.345, epoch_num=1)
    log("eval_stop", None, "INTERVAL_END", epoch_num=1)
    log("run_stop", None, "INTERVAL_END", status="success")
    return "".join(lines)


def ask_peer(python: str, log: Path) -> Taken:
    """The time of the peer's command for ``log``; RuntimeError unless it accepts."""
    command = [python, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", RULESET]
    command += ["--log_output", str(log.with_suffix(".out")), str(log)]
    started, used = time.perf_counter(), _of_children()
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    took = Taken(time.perf_counter() - started, _of_children() - used)
    if answer.returncode:
        raise RuntimeError(f"the peer rejects its log: {answer.stderr[-2000:]}")
    return took


def ask_ours(sandbox: Sandbox, folder: Path) -> Taken:
    """The time of the sandbox for the result in ``folder``; RuntimeError unless it accepts."""
    started, used = time.perf_counter(), _of_process(sandbox.pid)
    verdict = check_in(sandbox, folder)
    took = Taken(time.perf_counter() - started, _of_process(sandbox.pid) - used)
    if not verdict.accepted:
        raise RuntimeError(f"rejected: {verdict.findings[0]}")
    return took


def _of_children() -> float:
    """Processor seconds of ended children: those of the peer, because the sandbox's child is alive."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _of_process(pid: int | None) -> float:
    """Processor seconds of a living process, from the scheduler's nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.speed")
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter that has mlperf-logging")
    parser.add_argument("--results", metavar="FOLDER", type=Path, help="judge the results below it")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name, Sandbox(CHECK_TASKS) as sandbox:
        if args.results is None:
            numbers = range(min(DISTINCT, args.logs))
            folders = [write_good(Path(name), Good(run_hex=f"{number:08x}")) for number in numbers]
        else:
            folders = sorted(log.parent for log in args.results.rglob("run.jsonl"))
        sizes = [(folder / "run.jsonl").stat().st_size for folder in folders]
        peers = [Path(name, f"peer-{i}.log") for i in range(len(folders))]
        for path, size in zip(peers, sizes, strict=True):
            path.write_text(peer_log(size))
        for folder in folders:  # starts the child, which imports the specification of each workload once
            check_in(sandbox, folder)
        ours, theirs = [], []
        for turn in range(args.logs):
            at = turn % len(folders)
            ours.append(ask_ours(sandbox, folders[at]))
            if args.peer:
                theirs.append(ask_peer(args.peer, peers[at]))
        peer_size = sum(path.stat().st_size for path in peers) / sum(sizes)
    asked = [sizes[turn % len(sizes)] for turn in range(args.logs)]
    total = sum(asked)
    print(f"{args.logs} logs of {total / args.logs / _MB:.2f} MB, the peer's of {peer_size:.3f} of our bytes")
    for clock in Taken._fields:
        mine = [getattr(one, clock) for one in ours]
        print(
            f"{clock:10} ours: {_summary(mine)}, {total / sum(mine) / _MB:.1f} MB/s over all, "
            f"{max(size / one for size, one in zip(asked, mine, strict=True)) / _MB:.1f} MB/s at best"
        )
        if theirs:
            other = [getattr(one, clock) for one in theirs]
            ratio = statistics.median(their / our for our, their in zip(mine, other, strict=True))
            print(
                f"{clock:10} peer: {_summary(other)}; ratio: median of pairs {ratio:.1f}, "
                f"of sums {sum(other) / sum(mine):.1f}"
            )
    return 0


def _summary(seconds: Sequence[float]) -> str:
    return f"median {1e3 * statistics.median(seconds):.1f} ms, best {1e3 * min(seconds):.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
