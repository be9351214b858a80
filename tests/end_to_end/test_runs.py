"""Runs of pairs from the command to an accepted result, and the commands that read results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.environments.environments import tools_plan
from suite.log.model import Record
from suite.log.reader import read_result
from tests.end_to_end.command import ROOT, command, run
from tests.equivalence.case import FRAMEWORKS


def accepted_run(results: Path, *overrides: str, workload: str = "ncf", framework: str = "pytorch") -> Record:
    """The record of a run that the checker must accept."""
    done = run(results, *overrides, workload=workload, framework=framework)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("result: ")
    return read_result(ROOT / last.removeprefix("result: "))


def peak_memory(record: Record) -> int:
    return max(report["memory"]["peak_rss_bytes"] for report in record.all("rank_end"))


# Every framework trains ncf and gnmt in tests/containers and runs on ranks in other tests. Here each trains
# and infers a model with a state of its own; gnmt, whose batches have several lengths, infers in one.
# ncf has the five repeats of the rules: a number that is given declares differences, and fewer rules apply.
# Of the others a training has two repeats, which the checker compares, and an inference one.
RUNS = [("ncf", "infer", "pytorch"), ("gnmt", "infer", "mxnet")]
RUNS += [("lstm_ptb", phase, each) for phase in ("train", "infer") for each in FRAMEWORKS]


@pytest.mark.parametrize(("workload", "phase", "framework"), RUNS)
def test_run_of_pair_is_accepted(workload: str, phase: str, framework: str, tmp_path: Path) -> None:
    repeats = 5 if workload == "ncf" else 2 if phase == "train" else 1
    counts = () if repeats == 5 else (f"repeats={repeats}",)
    record = accepted_run(tmp_path, f"phase={phase}", *counts, workload=workload, framework=framework)
    assert_complete(record, repeats)


def assert_complete(record: Record, repeats: int) -> None:
    assert len(record.repeats) == repeats
    assert peak_memory(record) < 4 << 30
    losses = [float.fromhex(step["loss"]) for step in record.repeats[0].steps if step["loss"]]
    assert (losses[-1] < losses[0]) if record.header["key"]["phase"] == "train" else not losses


@pytest.mark.parametrize(
    "overrides",
    [
        ("precision=bf16", "data=synthetic", "variant=f64"),
        ("cache=cold", "framework.fast=false", "framework.threads=1"),
        ("framework.wait_policy=active", "workload.hyper.rate=2e-3"),
    ],
    ids=" ".join,
)
def test_run_with_other_options_is_accepted(overrides: tuple[str, ...], tmp_path: Path) -> None:
    settings = accepted_run(tmp_path, "repeats=1", *overrides).header["settings"]
    for option in overrides:
        name, value = option.split("=")
        if "." not in name:
            assert settings[name] == value


@pytest.mark.skipif(not tools_plan("dali").ready, reason="no environment: python -m suite environments dali")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_run_with_dali_beside_the_packages_of_the_framework_is_accepted(
    framework: str, tmp_path: Path
) -> None:
    options = ("repeats=1", "runtime=native", "data=real", "loader=dali")
    argv = command(tmp_path, *options, workload="resnet50", framework=framework)
    without = [part for part in argv if not part.startswith("framework.python=")]  # the suite's environment
    done = subprocess.run(without, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (folder,) = tmp_path.glob("*-resnet50-*[0-9a-f]")
    record = read_result(folder)
    (inside,) = (env for env in record.all("env") if env["side"] == "inside")
    assert inside["facts"]["decoder"].startswith("nvidia.dali 2")


@pytest.mark.parametrize(
    ("workload", "framework"), [*(("ncf", name) for name in FRAMEWORKS), ("gnmt", "pytorch")]
)
def test_quality_run_reaches_the_target(workload: str, framework: str, tmp_path: Path) -> None:
    record = accepted_run(tmp_path, "mode=quality", workload=workload, framework=framework)
    last = record.repeats[0].evaluations[-1]
    assert last["reached"]
    assert record.footer is not None
    assert record.footer["claims"]["time_to_quality_ns"] > 0


def suite(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "suite", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One accepted result with the five repeats of the rules, which the tests below share."""
    results = tmp_path_factory.mktemp("results")
    accepted_run(results)
    return next(path for path in results.iterdir() if (path / "run.jsonl").exists())


def test_run_has_five_repeats_by_default(result: Path) -> None:
    assert_complete(read_result(result), 5)


def test_check_prints_json(result: Path) -> None:
    done = suite("check", "--json", str(result))
    assert done.returncode == 0
    verdict = json.loads(done.stdout)
    assert '"accepted": true' in json.dumps(verdict)


def test_summary_lists_the_result(result: Path) -> None:
    done = suite("summary", "--format", "csv", str(result.parent))
    assert done.returncode == 0, done.stderr
    header, row = done.stdout.strip().splitlines()[:2]
    assert "throughput_per_s" in header.split(",")
    assert "ncf" in row
    assert "pytorch" in row


def test_edited_log_is_rejected(result: Path, tmp_path: Path) -> None:
    copy = tmp_path / result.name
    copy.mkdir()
    text = (result / "run.jsonl").read_text()
    (copy / "run.jsonl").write_text(text.replace('"step_end_ns":1', '"step_end_ns":2', 1))
    done = suite("check", str(copy))
    assert done.returncode == 1
    assert "reject: LOG-" in done.stdout


def test_dry_run_prints_plan_and_writes_nothing(tmp_path: Path) -> None:
    done = run(tmp_path / "results", "dry=true", f"data_root={tmp_path / 'data'}")
    assert done.returncode == 0, done.stderr
    for option in ("division", "data", "environment", "disk", "time", "verdict"):
        assert f"\n{option} " in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_dry_run_into_a_closed_pipe_prints_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m suite run workload=ncf framework=pytorch runtime=native dry=true | true"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_hydra_prints_configuration_sweeps_and_reads_experiments(tmp_path: Path) -> None:
    shown = run(tmp_path, "--cfg", "job", "--resolve")
    assert shown.returncode == 0
    assert "precision: fp32" in shown.stdout
    swept = run(tmp_path / "results", "phase=train,infer", "dry=true", "-m")
    assert swept.returncode == 0, swept.stderr
    assert swept.stdout.count("ncf in pytorch: ") == 2
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "study.yaml").write_text("# @package _global_\nprecision: bf16\n")
    study = run(tmp_path / "results", "+experiment=study", "dry=true", "--config-dir", str(tmp_path))
    assert study.returncode == 0, study.stderr
    assert "bf16" in study.stdout
