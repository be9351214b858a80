"""``suite preprocess``: a conversion is accepted and continues after an interruption; damage is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.contract import ConversionKey
from suite.datasets.prepare import prepare
from suite.log.reader import read_result
from tests.end_to_end.command import DATA, ROOT
from tests.equivalence.interpreters import interpreter


def command(root: Path, *options: str) -> list[str]:
    """The argv of a conversion to RecordIO below ``root``; skips the test without MXNet's environment."""
    return [
        *(sys.executable, "-m", "suite", "preprocess", "workload=resnet50", "to=recordio", "scale=mini"),
        *(f"framework.python={interpreter('mxnet')}", f"results_dir={root / 'results'}"),
        *(f"data_root={root / 'data'}", f"cache_dir={root / 'cache'}", *options),
    ]


def preprocess(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = command(root, *options)
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def run_inference(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The finished inference of alexnet on the data below ``root``."""
    argv = [
        *(sys.executable, "-m", "suite", "run", "workload=alexnet", "framework=mxnet", "phase=infer"),
        *(f"framework.python={interpreter('mxnet')}", f"results_dir={root / 'read'}"),
        *(f"data_root={root / 'data'}", f"cache_dir={root / 'cache'}", "scale=mini", *options),
    ]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder whose data root has only the generated images of this checkout."""
    prepare("imagenet-mini", DATA)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "imagenet-mini").symlink_to(DATA / "imagenet-mini")
    return tmp_path


@pytest.mark.slow
def test_conversion_gives_accepted_result_and_dataset(root: Path) -> None:
    done = preprocess(root)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = Path(done.stdout.strip().splitlines()[-1].removeprefix("result: "))
    assert check_result(result).accepted
    record = read_result(result)
    assert (record.kind, record.conversion) == (
        "conversion", ConversionKey("resnet50", "mxnet", "recordio", 20, "mini", "warm"),
    )  # fmt: skip
    assert record.header["settings"]["storage"] == "recordio"
    assert [repeat.units for repeat in record.repeats] == [2000] * 5
    for shown in ("images/s", "MB/s", "files read", "shards written", "disks"):
        assert shown in done.stdout

    folder = root / "data" / "imagenet-mini-recordio"
    assert f"converted: {folder}" in done.stdout
    stored = json.loads((folder / "storage.json").read_text())
    assert stored == {"storage": "recordio", "shards": {"train": [20] * 100, "val": [20] * 10}}
    manifest = json.loads((folder / "manifest.json").read_text())
    made = manifest["shards"]["train-00042-of-00100"]
    step = next(step for step in record.repeats[0].steps if step["step"] == 42)
    assert (made["pixels"], made["sha256"]) == (step["batch_digest"], step["output_digest"])
    assert sorted(path.name for path in (root / "data").iterdir()) == ["imagenet-mini", folder.name]

    listed = [sys.executable, "-m", "suite", "summary", "--format", "json", str(result.parent)]
    table = json.loads(subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout)["tables"][0]
    row = table["results"][0]
    assert (table["mode"], row["storage"], row["unit"]) == ("conversion", "recordio", "images")
    assert row["shards_written_mb_per_s"] > row["files_read_mb_per_s"] > 0

    # Each repeat reads the same shards, and the fingerprint none.
    read = run_inference(root, "storage=recordio", "repeats=1", "fingerprint=false")
    assert read.returncode == 0, read.stdout[-3000:] + read.stderr[-3000:]
    header = read_result(Path(read.stdout.strip().splitlines()[-1].removeprefix("result: "))).header
    assert header["settings"]["storage"] == "recordio"
    assert header["dataset"]["digest"] == record.header["dataset"]["digest"]

    again = preprocess(root, "measure=false")
    assert again.returncode == 0, again.stderr
    assert "all 110 shards exist" in again.stderr
    shard = folder / "val-00003-of-00010.rec"
    shard.write_bytes(shard.read_bytes()[:-1])
    damaged = preprocess(root, "measure=false")
    assert damaged.returncode == 12
    refused = run_inference(root, "storage=recordio")
    assert refused.returncode == 12
    assert "val-00003-of-00010.rec" in refused.stderr
    assert "val-00003-of-00010.rec: expected the digest" in damaged.stderr


def test_interrupted_conversion_continues(root: Path) -> None:
    finished = root / "data" / ".converting" / "imagenet-mini-recordio" / "work" / "finished"
    process = subprocess.Popen(command(root, "measure=false"), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until and len(list(finished.glob("*.json"))) < 5:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    finished_before = {path.name: path.stat().st_mtime_ns for path in finished.glob("*.json")}
    assert 5 <= len(finished_before) < 110
    assert not (root / "data" / "imagenet-mini-recordio").exists()

    done = preprocess(root, "measure=false")
    assert done.returncode == 0, done.stderr
    assert f"{len(finished_before)} existed before" in done.stderr
    assert (root / "data" / "imagenet-mini-recordio" / "manifest.json").exists()
    assert not list((root / "results").glob("*/run.jsonl"))  # nothing was measured
