"""Two interleaved runs: each leaves a complete log, also when the other one fails or is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from tests.end_to_end.command import DATA, ROOT, alive
from tests.equivalence.interpreters import interpreter

COMMON = ("workload=ncf", "data=synthetic", "fingerprint=false", f"data_root={DATA}", "framework=pytorch")


def argv(results: Path, options: list[str], a: str, b: str) -> list[str]:
    common = [*COMMON, f"results_dir={results}", f"framework.python={interpreter('pytorch')}"]
    return [sys.executable, "-m", "suite", "ab", *options, *common, "--", a, "--", b]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def result_folders(results: Path) -> list[Path]:
    return sorted(log.parent for log in results.glob("*/run.jsonl"))


@pytest.mark.slow
def test_interleaved_runs_give_two_accepted_results_and_a_comparison(tmp_path: Path) -> None:
    results, report = tmp_path / "results", tmp_path / "ab.xml"
    arguments = argv(
        results, ["--format", "json", "--junit", str(report), "repeats=3"], "framework.threads=1", "batch=512"
    )
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(result_folders(results)) == 2
    for folder in result_folders(results):
        assert check_result(folder).accepted
    value = json.loads(done.stdout)
    assert [
        value[side]["run_id"] in {folder.name for folder in result_folders(results)} for side in "ab"
    ] == [
        True,
        True,
    ]
    assert {(row["name"], row["a"], row["b"]) for row in value["differences"]} == {("batch", 256, 512)}
    assert not value["like_with_like"]
    assert value["paired"]
    assert "compare throughput" in report.read_text()
    starts = sorted(
        (event["wall"], side)
        for side in "ab"
        for event in events(results / value[side]["run_id"])
        if event["kind"] == "repeat_start"
    )
    assert "".join(side for _, side in starts) == "abbaab"


def test_failure_of_one_side_ends_both_with_its_exit_code(tmp_path: Path) -> None:
    results, report = tmp_path / "results", tmp_path / "ab.xml"
    arguments = argv(results, ["--junit", str(report)], "batch=256", "batch=4000000000000")
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 21, done.stderr
    assert "error: B: out_of_memory in repeat 0" in done.stderr
    assert "error: A: interrupted" in done.stderr
    assert "the other run of this comparison ended" in done.stderr
    assert 'testcase name="B has run"' in report.read_text()
    complete, partial = sorted(result_folders(results), key=lambda folder: folder.name.endswith(".partial"))
    assert check_result(complete).accepted  # accepted without a score
    abort, footer = events(partial)[-2:]
    assert (abort["data"]["code"], abort["repeat"], footer["data"]["outcome"]) == (
        "interrupted",
        None,
        "aborted",
    )
    assert not any(found.rule.startswith("LOG-") for found in check_result(partial).findings)


def test_interrupt_ends_both_runs_with_complete_logs(tmp_path: Path) -> None:
    running = subprocess.Popen(
        argv(tmp_path, [], "", ""), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while sum(log.read_text().count('"kind":"step"') for log in tmp_path.glob("*/run.jsonl")) < 110:
        assert time.monotonic() < until
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "error: A: interrupted" in errors
    assert "error: B: interrupted" in errors
    assert not alive(running.pid)
    assert len(result_folders(tmp_path)) == 2
    for folder in result_folders(tmp_path):
        assert folder.name.endswith(".partial")
        assert [event["kind"] for event in events(folder)[-2:]] == ["abort", "footer"]
        assert not any(found.rule.startswith("LOG-") for found in check_result(folder).findings)
