"""Several ranks in one run, with a toy framework and workload in a copy of the project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOOP = ROOT / "tests" / "fixtures" / "noop"
TOY = ROOT / "tests" / "fixtures" / "toy_framework"
FILES = {
    "spec.py": "suite/workloads/noop/spec.py",
    "data.py": "suite/workloads/noop/data.py",
    "pair.py": "suite/workloads/noop/toy.py",
    "workload.yaml": "conf/workload/noop.yaml",
    "rules.json": "rules/practice/workloads/noop.json",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the toy framework and the workload noop."""
    root = tmp_path_factory.mktemp("project")
    unwanted = shutil.ignore_patterns("__pycache__", "*.tmp")
    for folder in ("suite", "conf", "rules", "containers"):
        shutil.copytree(ROOT / folder, root / folder, ignore=unwanted)
    shutil.copytree(TOY / "toy", root / "suite" / "frameworks" / "toy", ignore=unwanted)
    shutil.copy(TOY / "toy.yaml", root / "conf" / "framework")
    for name, target in FILES.items():
        (root / target).parent.mkdir(exist_ok=True)
        shutil.copy(NOOP / name, root / target)
    return root


def command(tree: Path, results: Path, *options: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a run on two devices."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    common = ("workload=noop", "framework=toy", "devices=2", "strategy=independent", "data=synthetic")
    paths = (f"framework.python={sys.executable}", f"results_dir={results}", f"cache_dir={results}/cache")
    argv = [sys.executable, "-m", "suite", "run", *common, *paths, *options]
    return argv, environment | {"PYTHONPATH": str(tree), "CUDA_VISIBLE_DEVICES": ""}


def log_of(results: Path) -> list[dict[str, Any]]:
    """The events of the only log."""
    (log,) = results.glob("*/run.jsonl")
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def ranks_of(parent: int) -> list[int]:
    """Process ids of the workers that are children of ``parent``."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (path / "cmdline").read_bytes().split(b"\0")
            status = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"suite.worker" in arguments and int(status[1]) == parent and status[0] != "Z":
            found.append(int(path.name))
    return found


def test_run_on_two_ranks_is_accepted(tree: Path, tmp_path: Path) -> None:
    argv, environment = command(tree, tmp_path)
    done = subprocess.run(
        argv, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "accepted: " in done.stdout
    events = log_of(tmp_path)
    assert {event["data"]["world_size"] for event in events if event["kind"] == "repeat_start"} == {2}
    first = [event for event in events if event["repeat"] == 0]
    steps = [event["data"] for event in first if event["kind"] == "step"]
    assert [(step["rank"], step["step"]) for step in steps] == [(r, s) for r in (0, 1) for s in range(110)]
    assert {step["units"] for step in steps} == {16}
    assert steps[0]["batch_digest"] != steps[110]["batch_digest"]
    facts = [event["data"]["facts"] for event in first if event["data"].get("side") == "inside"]
    cores = len(os.sched_getaffinity(0))
    assert len({one["affinity"] for one in facts}) == min(2, cores)
    (end,) = [event["data"] for event in first if event["kind"] == "repeat_end"]
    reports = [event["data"] for event in first if event["kind"] == "rank_end"]
    assert [report["rank"] for report in reports] == [0, 1]
    for report in reports:
        assert end["window"]["open_ns"] <= report["window"]["open_ns"]
        assert report["window"]["close_ns"] <= end["window"]["close_ns"]
    assert reports[0]["parameters"]["initial"] == reports[1]["parameters"]["initial"]
    assert end["units"] == 2 * 16 * 100


def test_soaks_are_sampled(tree: Path, tmp_path: Path) -> None:
    limits = tree / "rules" / "practice" / "limits.json"
    before = limits.read_text()
    limits.write_text(json.dumps({**json.loads(before), "soak_ns": 3_000_000_000}))
    argv, environment = command(tree, tmp_path, "devices=1", "fingerprint=false")
    try:
        done = subprocess.run(
            argv, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
    finally:
        limits.write_text(before)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]  # so every sample lies in its soak
    samples = [event["data"] for event in log_of(tmp_path) if event["data"].get("source") == "sample"]
    assert [sample["at"] for sample in samples].count("soak") >= 3  # of fifteen; the first may come late


def test_killed_rank_ends_the_run_and_is_named(tree: Path, tmp_path: Path) -> None:
    argv, environment = command(tree, tmp_path)
    with subprocess.Popen(
        argv, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        ranks: list[int] = []
        deadline = time.monotonic() + 60
        while len(ranks) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            parents = ranks_of(run.pid)
            ranks = ranks_of(parents[0]) if parents else []
        assert len(ranks) == 2
        time.sleep(1.0)  # until it runs steps
        os.kill(max(ranks), 9)
        killed = time.monotonic()
        output, _ = run.communicate(timeout=60)
        seconds = time.monotonic() - killed
    assert run.returncode == 22, output
    assert "rank 1 (node 0)" in output
    assert seconds < 40
    abort = next(event["data"] for event in log_of(tmp_path) if event["kind"] == "abort")
    assert (abort["code"], abort["signal"], abort["rank"], abort["node"]) == ("killed", 9, 1, 0)
    assert not any(Path(f"/proc/{pid}").exists() for pid in (*parents, *ranks))
