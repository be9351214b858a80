"""Measuring a baseline: the programs on a processor, a wrong result, a missing fio, and the command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.baseline import disk, run
from suite.cli import main
from suite.cli.make import translate
from suite.containers.engines.native import PROJECT
from suite.environments import environments
from suite.metrics.baseline import WINDOWS, BaselineProblem, read_log, read_shared
from tests.fixtures.baselines import Events, write_log

PYTORCH = environments.plan("pytorch", "cpu")
needs_pytorch = pytest.mark.skipif(not PYTORCH.ready, reason="the environment pytorch-cpu is not made")


@needs_pytorch
def test_the_command_measures_the_cpu_and_shares_what_it_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "SECONDS", {"cpu": (0.02, 0.02)})
    monkeypatch.setattr(run, "QUICK_ARRAY_MIB", 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(environments, "ensure", lambda *_, **__: PYTORCH.python)
    assert main(["baseline", "--quick", "--group", "cpu", "--baselines", str(tmp_path)]) == 0
    (log,) = (tmp_path / "logs").iterdir()
    found = read_log(log)
    (shared,) = tmp_path.glob("*/*.json")
    assert read_shared(shared) == found
    assert set(found.series) == {
        "cpu.gemm_fp32_core", "cpu.gemm_fp32", "cpu.copy", "cpu.triad_core", "cpu.triad",
        "cpu.page_cache_read", "cpu.jpeg_core", "cpu.jpeg",
    }  # fmt: skip
    assert found.missing == {}
    table, _, rest = capsys.readouterr().out.partition("\nlog: ")
    assert str(shared) in rest
    assert main(["baseline", "--log", str(log), "--baselines", str(tmp_path)]) == 0  # the same table
    assert capsys.readouterr().out == f"{table}\nlog: {log}\n"


@needs_pytorch
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "ensure", lambda *_, **__: PYTORCH.python)
    (tmp_path / "file").touch()
    assert main(["baseline", "--group", "cpu", "--baselines", str(tmp_path / "file")]) == 15
    assert "name another folder with --baselines" in capsys.readouterr().err


def test_a_broken_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path)
    with (log / "run.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert main(["baseline", "--log", str(log)]) == 2
    assert "is no valid baseline" in capsys.readouterr().err


def test_a_slow_machine_fails_the_command_and_a_broken_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "logs")
    found = read_log(log)
    folder = tmp_path / found.cohort.folder
    folder.mkdir()
    for number in range(6):
        faster = {name: replace(one, work=one.work * 2) for name, one in found.series.items()}
        other = replace(found, digest=f"{number:064x}", when="2026-01-01T00:00:00.000000Z", series=faster)
        (folder / f"{other.digest}.json").write_bytes(other.shared())
    (folder / "broken.json").write_text("{}")
    assert main(["baseline", "--log", str(log), "--baselines", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "cpu.copy is slow: -50.0% from the median of n = 6, threshold -2.0%" in " ".join(shown.out.split())
    assert "left out: broken.json" in shown.err


@pytest.mark.parametrize(
    ("second", "code", "last"), [(0.5, 1, "cpu.copy"), (1.0, 0, "no series")], ids=["slow", "disturbed once"]
)
def test_a_slow_series_is_measured_again(
    second: float, code: int, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    known = read_log(write_log(tmp_path / "known"))
    folder = tmp_path / known.cohort.folder
    folder.mkdir()
    for number in range(6):
        other = replace(known, digest=f"{number:064x}", when="2026-01-01T00:00:00.000000Z")
        (folder / f"{other.digest}.json").write_bytes(other.shared())

    def slower(factor: float, at: str) -> Path:
        def edit(events: Events, header: dict[str, Any]) -> None:
            for kind, data in events:
                if kind == "window" and data["name"] == "cpu.copy":
                    data["elapsed_ns"] = round(data["elapsed_ns"] / factor)

        return write_log(tmp_path / at, edit)

    measured: list[tuple[str, ...]] = []
    logs = iter((slower(0.5, "first"), slower(second, "second")))

    def measure(args: object, groups: tuple[str, ...]) -> Path:
        measured.append(groups)
        return next(logs)

    monkeypatch.setattr("suite.cli.baseline._measured", measure)
    assert main(["baseline", "--baselines", str(tmp_path)]) == code
    assert measured == [("cpu", "gpu")] * 2
    assert f"slow in both measurements: {last}\n" in capsys.readouterr().out


_WRONG_GEMM = """
import torch
from suite.frameworks.pytorch.baseline import windows
from suite.frameworks.pytorch.baseline.gpu import gemm_error

a, b = torch.randn(512, 512), torch.randn(512, 512)
wrong = a @ b
wrong[77, 300] += 22.6  # one element, by its usual size
assert gemm_error(a, b, a @ b) < 1e-4 < gemm_error(a, b, wrong)
one = windows.repeated(windows.Series("x", "FLOP", 1, ""), lambda calls: None, lambda: (1.0, 0.5), 1e-6)
raise SystemExit(windows.main(lambda: windows.measure([("x", lambda: one)])))
"""


@needs_pytorch
def test_one_wrong_element_is_a_wrong_result() -> None:
    command = [str(PYTORCH.python), "-c", _WRONG_GEMM]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "kind": "wrong", "name": "x", "expected": "an error of at most 0.5", "found": "1",
    }  # fmt: skip


@needs_pytorch
def test_the_gpu_program_runs_on_a_processor() -> None:
    module = "suite.frameworks.pytorch.baseline.gpu"
    command = [str(PYTORCH.python), "-m", module, "--device", "cpu", "--seconds", "0.01", "--burst", "0.1"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    series = {line["name"] for line in lines if line["kind"] == "series"}
    gemms = {
        f"gpu0.gemm_{p}_{part}" for p in ("fp32", "tf32", "bf16", "fp16") for part in ("first", "plateau")
    }
    others = {f"gpu0.{name}" for name in ("copy", "triad", "h2d", "d2h", "launch", "launch_queued")}
    assert series == gemms | others
    for name in series:
        windows = [line for line in lines if line["kind"] == "window" and line["name"] == name]
        assert [line["window"] for line in windows] == list(range(WINDOWS))
        assert min(line["elapsed_ns"] for line in windows) > 0
    order = [line["name"] for line in lines if line["kind"] == "window"]
    assert order[: len(series)] != order[len(series) : 2 * len(series)]  # the second round is reversed
    assert {line["name"] for line in lines if line["kind"] == "missing"} == {
        "gpu0.jpeg", "gpus.all_reduce_64k",
    }  # fmt: skip
    assert [line["name"] for line in lines if line["kind"] == "check"] != []


@needs_pytorch
def test_plain_loops_run_beside_the_gpu_program() -> None:
    options = ["--device", "cpu", "--seconds", "0.01", "--burst", "0.05", "--rounds", "2"]
    command = [str(PYTORCH.python), "-m", "peers.baseline_plain", *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    gemms = [f"gemm_{precision}" for precision in ("fp32", "tf32", "bf16", "fp16")]
    assert [row["series"] for row in rows] == [*gemms, "copy", "h2d", "d2h"]
    for row in rows:
        assert row["ratio"] == row["suite"] / row["plain"] > 0


PROGRAMS = {
    "wrong": (
        'print(\'{"kind": "wrong", "name": "cpu.copy", "expected": "0", "found": "inf"}\'); exit(3)',
        "cpu.copy: expected 0, found inf",
    ),
    "crash": ("raise SystemExit(7)", "ended with 7"),
    "no JSON": ("print('hello')", "expected a JSON line, found 'hello"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_failed_program_leaves_no_finished_log(name: str, tmp_path: Path) -> None:
    source, message = PROGRAMS[name]
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{source}\n")
    program.chmod(0o755)
    with pytest.raises(run.GroupFailed, match=message):
        run.measure(
            ("cpu",), {"cpu": program}, folder=tmp_path / "logs", disk_folder=tmp_path, quick=True, gpus=0,
            report=print,
        )  # fmt: skip
    (left,) = (tmp_path / "logs").iterdir()
    assert left.name.endswith(".partial")
    with pytest.raises(BaselineProblem):
        read_log(left)


def test_without_fio_the_disk_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    arguments = ["--group", "disk", "--disk", str(tmp_path), "--baselines", str(tmp_path / "kept")]
    assert main(["baseline", *arguments]) == 13
    shown = capsys.readouterr()
    assert "disk.random_read_32: fio is not installed: sudo apt-get install fio" in " ".join(
        shown.out.split()
    )
    assert "nothing was measured" in shown.err
    assert not list(tmp_path.glob("kept/*/*.json"))


@pytest.mark.slow
@pytest.mark.usefixtures("ample_disk")
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_measures_files_that_are_removed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LARGEST_QUICK", disk.SMALLEST)
    monkeypatch.setattr(disk, "SECONDS", (0.1, 0.1))
    log = run.measure(
        ("disk",), {}, folder=tmp_path / "logs", disk_folder=tmp_path, quick=True, gpus=0, report=print
    )
    found = read_log(log)
    assert set(found.series) == set(disk.JOBS)
    assert "file of 64 MiB" in found.series["disk.read"].method
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group", "disk"], "needs a folder"),
        (["--group", "cpu", "--disk", "/tmp"], "--disk is for the group disk"),
        (["--disk", "/nonexistent"], "expected an existing folder"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["baseline", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_make_passes_its_variables_on() -> None:
    found = translate("baseline", ["QUICK=1", "GROUP=disk", "DISK=/data"])
    assert found == ["--quick", "--group", "disk", "--disk", "/data"]


def test_a_full_disk_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.baseline.disk.shutil.which", lambda name: "/usr/bin/fio")
    monkeypatch.setattr("suite.baseline.disk.shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(disk.DiskProblem, match=r"expected 1\.3 GB of free space, found 0\.0 GB: free some"):
        disk.measure(tmp_path, True, lambda kind, data: None)
    assert list(tmp_path.iterdir()) == []
