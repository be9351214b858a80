"""Bad input is refused before repeat 0, with one sentence and an exit code, and without leaving files."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite import workloads
from suite.cli import main
from tests.end_to_end.command import Running, command, run

CASES = [
    (("workload=gmnt",), 10, "did you mean gnmt?"),
    (("framework=pytorhc",), 10, "did you mean pytorch?"),
    (("data=/mnt/ratings",), 10, "use DATA_ROOT="),
    (("precison=bf16",), 10, "did you mean precision?"),
    (("precision=bf17",), 10, "did you mean bf16?"),
    (("batch=-3",), 10, "a whole number from 1"),
    (("phase=train", "scenario=single_stream"), 10, "single_stream goes with phase=infer"),
    (("phase=infer", "scenario=forward_backward"), 10, "forward_backward goes with phase=train"),
    (("devices=2", "scenario=forward_backward"), 10, "forward_backward goes with devices=1"),
    (("workload=word2vec", "scenario=forward_backward"), 11, "cannot run in word2vec"),
    (("scale=mini", "division=closed"), 10, "scale mini goes with practice"),
    (("workload.hyper.rat=1",), 10, "did you mean workload.hyper.rate?"),
    (("bundle=/nowhere", f"image=custom/image@sha256:{'a' * 64}"), 10, "leave out image="),
    (("bundle=/nowhere",), 13, "expected a folder written by `make fetch`"),
    (("precision=tf32",), 11, "precision tf32 cannot run in pytorch on cpu"),
    (("devices=2", "mode=quality", "strategy=independent"), 10, "quality trains one model on all devices"),
    (("devices=2", "strategy=parameter_server"), 11, "pytorch has no parameter_server here"),
    (("runtime=enroot", "image=x:latest"), 10, "sha256"),
    (("scale=reference", "data=real"), 12, "make data WORKLOAD=ncf"),
    (("framework.python=/nowhere/python",), 13, "expected an interpreter"),
]


@pytest.mark.parametrize(("options", "code", "message"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_bad_input_is_refused_with_its_exit_code(
    options: tuple[str, ...], code: int, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process: the other tests show that the command exits with what ``main`` returns."""
    found = main(command(tmp_path / "results", *options)[3:])
    output = capfd.readouterr().err
    assert (found, message in output) == (code, True), output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_missing_workload_error_lists_workloads() -> None:
    import sys

    argv = [sys.executable, "-m", "suite", "run", "framework=pytorch"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 10
    assert f"workload=<one of {', '.join(workloads.names())}>" in done.stderr


def test_error_names_corrupt_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "study.yaml").write_text("batch: [1,\n")
    done = run(tmp_path / "results", "+experiment=study", "--config-dir", str(tmp_path))
    assert done.returncode == 10
    assert "study.yaml" in done.stderr
    assert not (tmp_path / "results").exists()


def test_changed_dataset_file_is_refused_with_its_name_and_digest(tmp_path: Path) -> None:
    root = tmp_path / "data"
    done = run(tmp_path / "results", f"data_root={root}", "repeats=1", "fingerprint=false")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "results")
    ratings = root / "ml-1m-mini" / "ratings.dat"
    text = bytearray(ratings.read_bytes())
    text[0] = ord("2")
    ratings.write_bytes(bytes(text))
    done = run(tmp_path / "results", f"data_root={root}")
    assert done.returncode == 12
    assert "ratings.dat: expected sha256" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 68 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    results = tmp_path / "disk"
    results.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=68m", "tmpfs", str(results)], check=False)
    if mount.returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield results
    subprocess.run(["umount", "-l", str(results)], check=True)


def fill(results: Path) -> None:
    with (results / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def test_run_is_refused_if_the_disk_is_full(small_disk: Path) -> None:
    fill(small_disk)
    done = run(small_disk / "results", "data=synthetic")
    assert done.returncode == 15
    assert "MiB free" in done.stderr
    assert not (small_disk / "results").exists()


def test_run_that_fills_the_disk_leaves_partial_result(small_disk: Path) -> None:
    running = Running(small_disk, "data=synthetic", "fingerprint=false")
    running.wait_for("repeat_start", 2)
    fill(small_disk)
    code, errors = running.finish()
    assert (code, "no space left for the log" in errors) == (15, True), errors
    assert [path.name.endswith(".partial") for path in small_disk.iterdir() if path.is_dir()] == [True]


def test_run_is_refused_if_results_folder_is_read_only(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = run(small_disk / "results", "data=synthetic")
    assert done.returncode == 15
    assert "cannot be written" in done.stderr
