"""Limits on processors and memory: enforced, logged, and out of memory is an outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.checker import check_result
from suite.cli import main
from tests.containers.pairs import QUICK, containers, events, published, result, run

pytestmark = pytest.mark.docker
MIB = 1 << 20


def throttled_ns(results: Path, at: str) -> int:
    """The throttled time since the container's start, logged ``at`` a moment, summed over the repeats."""
    return sum(
        event["host"]["cpu_throttled_ns"]
        for event in events(result(results), "telemetry")
        if event["source"] == "counters" and event["at"] == at
    )


def limits_in_force(results: Path) -> list[dict[str, object]]:
    outside = [event for event in events(result(results), "env") if event["side"] == "outside"]
    return [event["facts"]["container"]["limits"] for event in outside]


def test_worker_is_throttled_with_half_a_processor_and_not_with_two(tmp_path: Path) -> None:
    published("ncf", "mxnet")
    half, two = tmp_path / "half", tmp_path / "two"
    for results, cpus in ((half, "0.5"), (two, "2")):
        done = run(results, f"runtime.cpus={cpus}", "runtime.memory=2g", "framework.threads=2", *QUICK)
        assert done.returncode == 0, done.stdout + done.stderr
        assert limits_in_force(results) == [
            {"cpus": cpus, "cpuset": None, "memory_bytes": 2048 * MIB, "shm_bytes": 16384 * MIB}
        ]
    # Counted since the start: on a busy machine, a short window may not reach its limit.
    # Two processors are all that two threads can use, so that the kernel hardly ever throttles them.
    throttled = throttled_ns(two, "window_close") - throttled_ns(two, "window_open")
    assert throttled < 0.1 * throttled_ns(half, "window_close")
    (header,) = events(result(half), "header")
    assert (header["settings"]["cpus"], header["settings"]["memory_bytes"]) == ("0.5", 2048 * MIB)


def test_worker_with_cpuset_of_one_core_uses_one_thread(tmp_path: Path) -> None:
    published("ncf", "mxnet")
    done = run(tmp_path, "runtime.cpuset=[0]", "runtime.cpus=1", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["cpuset"] for row in limits_in_force(tmp_path)} == {"0"}
    (header,) = events(result(tmp_path), "header")
    assert header["settings"]["threads"] == 1
    inside = [event["facts"] for event in events(result(tmp_path), "env") if event["side"] == "inside"]
    assert {facts["affinity"].isdecimal() for facts in inside} == {True}  # one core, no range


def test_run_out_of_memory_is_accepted_without_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published("ncf", "mxnet")
    done = run(tmp_path, "runtime.memory=100m")
    assert done.returncode == 21, done.stdout + done.stderr
    found = result(tmp_path)
    assert not found.name.endswith(".partial"), "expected a complete result"
    (abort,) = events(found, "abort")
    assert abort["code"] == "out_of_memory"
    verdict = check_result(found)
    assert verdict.accepted
    assert not verdict.scored
    assert main(["summary", str(tmp_path), "--format", "md"]) == 0
    assert "OOM" in capsys.readouterr().out
    assert containers(found) == []


def test_limit_is_refused_in_native_runtime(tmp_path: Path) -> None:
    done = run(tmp_path, "runtime=native", "runtime.memory=8g")
    assert done.returncode == 11
    assert "runtime native cannot enforce a limit" in done.stderr
    assert not list(tmp_path.iterdir())
