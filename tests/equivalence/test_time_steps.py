"""Steps are timed on two ranks, and a constant that does not exist is named."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run

MINI = ("--workload", "ncf", "--scale", "mini", "--batch", "64", "--precision", "fp32", "--device", "cpu")


def test_two_ranks_print_the_time_of_their_steps() -> None:
    few = "--windows", "2", "--steps", "5", "--bucket-mib", "1"
    done = run("pytorch", "tools.time_steps", *MINI, "--devices", "2", *few, timeout=100)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(line["rank"] for line in lines) == [0, 1]
    for line in lines:
        assert len(line["windows_ms"]) == 2
        assert min(line["windows_ms"]) <= line["median_ms"] <= max(line["windows_ms"])
        assert min(line["windows_ms"]) > 0


def test_constant_that_does_not_exist_is_named() -> None:
    done = run("pytorch", "tools.time_steps", *MINI, "--set", "exchange.NOPE=1", timeout=100)
    assert done.returncode == 1
    assert "expected a constant of suite.frameworks.pytorch.exchange, found NOPE" in done.stderr
