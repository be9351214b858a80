"""A matrix of real runs: interrupted and resumed; with cells that fail, run out of memory or are N/A."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suite.environments import environments
from tests.end_to_end.command import DATA, ROOT, all_ended
from tests.equivalence.interpreters import interpreter

OPTIONS = ("data=synthetic", "repeats=2", "fingerprint=false", f"data_root={DATA}")


def argv(folder: Path, *options: str) -> list[str]:
    pytorch = ("--workload", "ncf", "--framework", "pytorch")
    return [sys.executable, "-m", "suite", "matrix", "--results-dir", str(folder), *pytorch, *options]


def matrix(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(folder, *options), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def finished(folder: Path) -> list[str]:
    return sorted(log.parent.name for log in folder.glob("*Z-*/run.jsonl") if ".partial" not in str(log))


def descendants(pid: int) -> list[int]:
    """Process ids of all descendants of ``pid``."""
    below: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            below += [int(entry.parent.name), *descendants(int(entry.parent.name))]
    return below


@pytest.fixture(autouse=True)
def _environment() -> None:
    interpreter("pytorch")  # skips the test, with the reason, if there is none
    if not environments.plan("pytorch", "cpu").ready:
        pytest.skip("the environment of pytorch is missing: make environments FRAMEWORK=pytorch")


@pytest.mark.slow
def test_interrupted_matrix_continues_with_the_next_cell(tmp_path: Path) -> None:
    running = subprocess.Popen(
        argv(tmp_path, *OPTIONS), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 240
    while time.monotonic() < until and running.poll() is None:
        logs = [log.read_text() for log in tmp_path.glob("*-infer-*.partial/run.jsonl")]
        if len(finished(tmp_path)) == 1 and any(text.count('"kind":"env"') >= 2 for text in logs):
            break  # a worker of the second cell runs
        time.sleep(0.1)
    started = descendants(running.pid)
    os.kill(running.pid, signal.SIGINT)
    table, progress = running.communicate(timeout=120)
    assert running.returncode == 130, progress
    assert "Traceback" not in progress
    assert all_ended(started)
    assert len(started) >= 2  # the run and its worker
    assert len(finished(tmp_path)) == 1
    assert [line.split()[-1] for line in table.splitlines()[2:4]] == ["samples/s", "run"]
    (interrupted,) = tmp_path.glob("*.partial/run.jsonl")
    assert json.loads(interrupted.read_text().splitlines()[-1])["kind"] == "footer"

    resumed = matrix(tmp_path, *OPTIONS)
    assert resumed.returncode == 0, resumed.stderr
    assert "2 cells: 1 done, 0 skipped, 1 to run" in resumed.stderr
    assert resumed.stdout.count("samples/s") == 2
    results = finished(tmp_path)
    assert len(results) == 2

    again = matrix(tmp_path, *OPTIONS, "--format", "json")
    assert again.returncode == 0
    assert "2 done, 0 skipped, 0 to run" in again.stderr
    (table_again,) = json.loads(again.stdout)["tables"]
    assert sorted(cell["run_id"] for cell in table_again["cells"]) == results
    assert finished(tmp_path) == results


@pytest.mark.slow
def test_cells_without_a_score_are_recorded_and_the_others_run(tmp_path: Path) -> None:
    options = (*OPTIONS, "--phase", "train", "batch=4000000000000,256", "precision=fp32,tf32")
    done = matrix(tmp_path, *options, f"framework.python={sys.executable}")
    assert done.returncode == 1, done.stderr
    assert "No module named 'torch'" in done.stdout
    failed = [line for line in (tmp_path / "journal.jsonl").read_text().splitlines() if '"error"' in line]
    assert [json.loads(line)["exit_code"] for line in failed] == [13, 13]

    memory = matrix(tmp_path, *OPTIONS, "--phase", "train", "batch=4000000000000", "precision=fp32,tf32")
    assert memory.returncode == 0, memory.stderr
    lines = memory.stdout.splitlines()
    assert [line.split()[-1] for line in lines[2:4]] == ["OOM", "N/A"]
    assert any(line.startswith("N/A: ") and "tf32" in line for line in lines)
    assert "1 done" in matrix(tmp_path, *OPTIONS, "--phase", "train", "batch=4000000000000", "--dry").stderr
