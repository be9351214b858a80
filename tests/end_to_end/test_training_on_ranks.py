"""Training on two ranks that exchange gradients: accepted, and ended at once when a rank is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.command import Running, all_ended, run, workers_of

OPTIONS = ("devices=2", "runtime=native", "telemetry=false", "fingerprint=false")
FEW = "repeats=1"  # ranks do in each repeat what they do in the first


def events_of(log: Path, kind: str, repeat: int = 0) -> list[dict[str, Any]]:
    """The data of the events of ``kind`` of ``repeat``."""
    events = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [event["data"] for event in events if event["kind"] == kind and event["repeat"] == repeat]


def processor_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


BACKENDS = {"pytorch": "gloo", "tensorflow": "ring", "mxnet": "cpu", "jax": "gloo"}


def test_training_on_two_ranks_is_accepted(tmp_path: Path) -> None:
    """In PyTorch; test_nodes.py exchanges natively in the others, and tests/containers in each of them."""
    done = run(tmp_path, *OPTIONS, FEW, framework="pytorch", workload="ncf")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "accepted: " in done.stdout
    assert "ranks: " in done.stdout
    (log,) = tmp_path.glob("*/run.jsonl")
    assert_ranks_exchanged(log, "pytorch")


def assert_ranks_exchanged(log: Path, framework: str) -> None:
    """The two ranks of the run of ncf in ``log`` trained one model, each on its share of the batch."""
    first, second = (report["parameters"] for report in events_of(log, "rank_end"))
    assert first == second
    assert len({first["initial"], first["step_10"], first["final"]}) == 3
    inside = [event for event in events_of(log, "env") if event["side"] == "inside"]
    found = [event["facts"]["framework"]["exchange"]["backend"] for event in inside]
    assert found == [BACKENDS[framework]] * 2
    steps = [step for step in events_of(log, "step") if step["step"] == 0]
    assert steps[0]["batch_digest"] != steps[1]["batch_digest"]
    shares = [float.fromhex(step["loss"]) for step in steps]
    assert sum(shares) == pytest.approx(0.6936, abs=0.001)  # as on one device with the same batch
    # Those of all steps: of one step they may be equal by chance, in float32.
    losses = [[step["loss"] for step in events_of(log, "step") if step["rank"] == rank] for rank in (0, 1)]
    assert losses[0] != losses[1]
    # The checker rejects an arrival at the exchange that lies outside its step.
    assert all(isinstance(step["exchange_ns"], int) for step in events_of(log, "step"))


def test_slow_rank_is_named(tmp_path: Path) -> None:
    pair = Path(__file__).parents[1] / "fixtures" / "pairs" / "slow_rank.py"
    options = ("repeats=3", f"pair={pair}")
    done = run(tmp_path, *OPTIONS, *options, framework="pytorch", workload="ncf")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "RANK-020" in done.stdout
    assert "ranks: rank 1 was slow in " in done.stdout


def test_two_ranks_train_to_the_target(tmp_path: Path) -> None:
    done = run(tmp_path, *OPTIONS, "mode=quality", framework="pytorch", workload="ncf")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (log,) = tmp_path.glob("*/run.jsonl")
    assert events_of(log, "evaluation")[-1]["reached"]
    first, second = (report["parameters"] for report in events_of(log, "rank_end"))
    assert first == second


@pytest.mark.parametrize(
    ("framework", "sent", "expected"),
    [
        ("tensorflow", signal.SIGKILL, (22, "killed")),
        ("jax", signal.SIGKILL, (22, "killed")),
        ("mxnet", signal.SIGSTOP, (20, "crashed")),
    ],
)
def test_lost_rank_ends_the_run_and_is_named(
    framework: str, sent: signal.Signals, expected: tuple[int, str], tmp_path: Path
) -> None:
    # Steps so long that the window lasts a few seconds, and no longer: the set-up runs the same steps.
    running = Running(tmp_path, *OPTIONS, "batch=100000", "data=synthetic", framework=framework)
    running.wait_for("clock", 2)  # one at the start of the repeat, one at the start of the window
    parents = running.workers()
    ranks = [rank for parent in parents for rank in workers_of(parent)]
    assert len(ranks) == 2
    used = processor_seconds(max(ranks))
    until = time.monotonic() + 60
    while processor_seconds(max(ranks)) < used + 0.3:  # it computes steps
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(max(ranks), sent)
    killed = time.monotonic()
    code, errors = running.finish(timeout=90)
    assert time.monotonic() - killed < 90
    assert code == expected[0], errors
    (log,) = tmp_path.glob("*/run.jsonl")
    (abort,) = events_of(log, "abort")
    assert (abort["code"], abort["rank"]) == (expected[1], 1)
    assert all_ended([*parents, *ranks])
