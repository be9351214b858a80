"""A failure during a run: the log states it, the exit code identifies it, and no process remains."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from tests.end_to_end.command import Running, all_ended, run

QUICK = ("data=synthetic", "fingerprint=false")


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def only_result(results: Path, pattern: str) -> Path:
    found = [path for path in results.glob(pattern) if not path.name.endswith(".debug")]
    assert len(found) == 1, sorted(path.name for path in results.iterdir())
    return found[0]


def test_interrupt_ends_run_and_reports_repeat(tmp_path: Path) -> None:
    running = Running(tmp_path, *QUICK)
    running.wait_for("repeat_start", 2)
    workers = running.workers()
    code, errors = running.finish(signal.SIGINT)
    assert code == 130
    assert "interrupted in repeat" in errors
    assert "Traceback" not in errors
    folder = only_result(tmp_path, "*.partial")
    *_, abort, footer = events(folder)
    assert (abort["kind"], abort["data"]["code"]) == ("abort", "interrupted")
    assert (footer["kind"], footer["data"]["outcome"], footer["data"]["claims"]) == (
        "footer",
        "aborted",
        None,
    )
    assert all_ended(workers)


def test_second_interrupt_does_not_truncate_log(tmp_path: Path) -> None:
    running = Running(tmp_path, *QUICK)
    running.wait_for("env", 2)
    os.kill(running.process.pid, signal.SIGHUP)
    os.kill(running.process.pid, signal.SIGTERM)
    code, errors = running.finish()
    assert (code, "Traceback" in errors) == (130, False)
    assert events(only_result(tmp_path, "*.partial"))[-1]["kind"] == "footer"


def test_interrupt_before_repeat_0_leaves_log_in_order(tmp_path: Path) -> None:
    running = Running(tmp_path, *QUICK)
    running.wait_for("header")
    code, _ = running.finish(signal.SIGINT)
    assert code == 130
    found = {finding.rule for finding in check_result(only_result(tmp_path, "*.partial")).findings}
    assert not any(rule.startswith("LOG-") for rule in found)


def test_interrupt_ends_a_sweep(tmp_path: Path) -> None:
    running = Running(tmp_path, *QUICK, "phase=train,infer", "-m")
    running.wait_for("env", 2)
    code, _ = running.finish(signal.SIGINT)
    assert code == 130
    only_result(tmp_path, "*.partial")


def test_killed_worker_is_reported_with_its_signal(tmp_path: Path) -> None:
    running = Running(tmp_path, *QUICK)
    running.wait_for("env", 4)
    for pid in running.workers():
        os.kill(pid, signal.SIGKILL)
    code, errors = running.finish()
    assert (code, "killed in repeat 1" in errors) == (22, True)
    abort = events(only_result(tmp_path, "*.partial"))[-2]["data"]
    assert (abort["code"], abort["signal"]) == ("killed", 9)


def test_killed_harness_leaves_partial_result_that_checker_rejects(tmp_path: Path) -> None:
    running = Running(tmp_path, *QUICK)
    running.wait_for("env", 4)
    workers = running.workers()
    code, _ = running.finish(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert all_ended(workers), "workers did not end at the end of their standard input"
    folder = only_result(tmp_path, "*.partial")
    assert events(folder)[-1]["kind"] != "footer"
    verdict = check_result(folder)
    assert not verdict.accepted
    assert any("repeat 1" in f"{finding.found} {finding.location}" for finding in verdict.findings)


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "mxnet", "jax"])
def test_run_out_of_memory_is_accepted_without_score(framework: str, tmp_path: Path) -> None:
    done = run(tmp_path, *QUICK, "batch=4000000000000", framework=framework)
    assert done.returncode == 21, done.stderr
    folder = only_result(tmp_path, "*")
    assert not folder.name.endswith(".partial")
    abort, footer = events(folder)[-2:]
    assert abort["data"]["code"] == "out_of_memory"
    assert footer["data"]["outcome"] == "out_of_memory"
    assert check_result(folder).accepted


def test_run_without_framework_aborts_with_the_import_error(tmp_path: Path) -> None:
    import sys

    done = run(tmp_path, *QUICK, f"framework.python={sys.executable}")
    assert done.returncode == 13
    assert "No module named 'torch'" in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "output of the worker" in line)
    assert "No module named 'torch'" in Path(line.split(": ")[1]).read_text()
    assert events(only_result(tmp_path, "*.partial"))[-2]["data"]["code"] == "environment"
