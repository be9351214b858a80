"""A scaling set at mini scale: interrupted, continued, checked, and shown again without another run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.command import DATA, ROOT
from tests.equivalence.interpreters import interpreter


def argv(results: Path, *options: str) -> list[str]:
    return [
        *(sys.executable, "-m", "suite", "scale", "--workload", "ncf", "--framework", "pytorch"),
        *("--devices", "1,2", "--results-dir", str(results), *options),
        *(f"framework.python={interpreter('pytorch')}", f"data_root={DATA}", "data=synthetic"),
        *("fingerprint=false", "telemetry=false", "repeats=2"),
    ]


def completed(results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(results, *options), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


def finished_repeats(results: Path) -> int:
    return sum(log.read_text().count('"kind":"repeat_end"') for log in results.glob("*/run.jsonl"))


@pytest.mark.slow
def test_interrupted_set_is_continued_and_a_complete_one_is_shown(tmp_path: Path) -> None:
    running = subprocess.Popen(
        argv(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 300
    while finished_repeats(tmp_path) < 1:
        assert time.monotonic() < until
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 130, errors
    assert "the same command continues" in errors
    (folder,) = (tmp_path / "sets").iterdir()
    assert json.loads((folder / "set.json").read_text())["groups"] == []

    done = completed(tmp_path, "--format", "json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    (group,) = value["groups"]
    assert value["verdict"]["accepted"]
    assert [arm["strategy"] for arm in group["arms"].values()] == ["independent", "independent", "allreduce"]
    assert group["bus_bandwidth"]["value"] > 0
    assert group["efficiency"]["low"] < group["efficiency"]["value"] < group["efficiency"]["high"]

    before = finished_repeats(tmp_path)
    shown = completed(tmp_path, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    assert "1 group: 1 done, 0 to run" in shown.stderr
    assert json.loads(shown.stdout) == value
    assert finished_repeats(tmp_path) == before

    check = [sys.executable, "-m", "suite", "check", str(folder)]
    verdict = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert verdict.returncode == 0, verdict.stderr
    assert "accepted" in verdict.stdout
    arm = group["arms"]["synchronous"]["run_id"]
    (tmp_path / arm).rename(tmp_path / "elsewhere")
    verdict = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert verdict.returncode == 1
    assert "SET-002" in verdict.stdout


def test_failed_group_is_kept_with_its_exit_code(tmp_path: Path) -> None:
    done = completed(tmp_path, "batch=4000000000000")
    assert done.returncode == 21, done.stderr
    assert "error: single: out_of_memory in repeat 0" in done.stderr
    (folder,) = (tmp_path / "sets").iterdir()
    (group,) = json.loads((folder / "set.json").read_text())["groups"]
    assert group["arms"] == {}
    assert group["failure"]["exit_code"] == 21
    assert "exit code 21: single: out_of_memory in repeat 0" in done.stdout
    assert "SET-003" in done.stderr
    (line,) = map(json.loads, (tmp_path / "journal.jsonl").read_text().splitlines())
    assert (line["outcome"], line["exit_code"], line["sweep"]) == ("oom", 21, folder.name)
    assert line["options"][-1] == "devices=2"
