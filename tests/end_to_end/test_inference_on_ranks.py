"""Inference on two ranks, one workload in each framework: the checker accepts the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.command import run

WORKLOADS = {"pytorch": "lstm_ptb", "tensorflow": "ncf", "mxnet": "word2vec", "jax": "ncf"}


@pytest.mark.parametrize("framework", WORKLOADS)
def test_inference_on_two_ranks_is_accepted(framework: str, tmp_path: Path) -> None:
    options = ("phase=infer", "devices=2", "repeats=1", "runtime=native", "telemetry=false")
    done = run(tmp_path, *options, "fingerprint=false", framework=framework, workload=WORKLOADS[framework])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "accepted: " in done.stdout
    (log,) = tmp_path.glob("*/run.jsonl")
    events: list[dict[str, Any]] = [json.loads(line) for line in log.read_bytes().splitlines()]
    steps = [event["data"] for event in events if event["kind"] == "step" and event["repeat"] == 0]
    assert [(step["rank"], step["step"]) for step in steps] == [(r, s) for r in (0, 1) for s in range(110)]
    first, second = ([step["batch_digest"] for step in steps if step["rank"] == rank] for rank in (0, 1))
    assert not set(first) & set(second)
    (end,) = [event["data"] for event in events if event["kind"] == "repeat_end" and event["repeat"] == 0]
    assert end["units"] == sum(step["units"] for step in steps if step["phase"] == "measured")
