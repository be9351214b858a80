"""A sweep that is killed and started again runs what is left, in the same order. The measuring is stubbed."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.plan import code
from suite.plan.machine import Machine
from suite.sweep import journal, planning
from suite.sweep.runner import RunExit, Runner
from tests.fixtures.good_log import MINI, Good
from tests.unit.test_matrix_planning import CODE, CPU, result
from tests.unit.test_plan import LAPTOP

BATCHES = [16 * number for number in range(1, 13)]
GRID = f"batch={','.join(map(str, BATCHES))}"

Stub = Callable[[int], RunExit | None]


@pytest.fixture(autouse=True)
def _imagined_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_processor_name", lambda: CPU)
    monkeypatch.setattr(planning, "detect_machine", lambda: _cpu_only(LAPTOP))
    monkeypatch.setattr(code, "code_digest", lambda: CODE)


def _cpu_only(machine: Machine) -> Machine:
    return replace(machine, gpus=())


def test_dry_run_states_a_reason_of_several_cells_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(tmp_path, "--dry", "--grid", "precision=fp32,tf32 batch=64,128,256") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["to", "to", "to", "skipped", "skipped", "skipped", "[1]"]
    assert all(line.endswith("  [1]") for line in lines[3:6])
    assert lines[6].startswith("[1] precision tf32 cannot run in pytorch on cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--grid", "batch=256,abc"), "batch: expected auto, max or a whole number"),
        (("--grid", "batch=256,abc framework.threads=1,x"), "found 'x'"),
        (("--grid", "batch=256", "precision=bf17"), "precision: expected one of"),
        (("--grid", "batch=256,512", "repeats=0"), "repeats: expected auto or a whole number"),
    ],
)
def test_a_value_that_no_cell_can_have_is_refused_before_any_cell(
    tmp_path: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ran = measuring(tmp_path, monkeypatch)
    for dry in ((), ("--dry",)):
        assert sweep(tmp_path, *options, *dry) == 10
        assert message in capsys.readouterr().err
    assert ran == []


def test_the_journal_has_the_axes_of_all_planned_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(tmp_path, monkeypatch)
    assert sweep(tmp_path, "--grid", "batch=256,512 cache=warm") == 0
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["axes"] == ["batch"]
    assert journal.last_seed(tmp_path, json.loads(lines[0])["sweep"]) is not None


def test_a_matrix_refuses_a_value_that_no_cell_can_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("matrix", "--workload", "ncf", "--framework", "pytorch", "--results-dir", str(tmp_path), "--dry")
    for option, message in (
        ("scale=min", "scale: expected one of auto, reference, mini, found 'min' (did you mean mini?)"),
        ("precision=fp32,bf17", "precision: expected one of fp32, tf32, bf16, fp16, found 'bf17'"),
    ):
        assert main([*one, option]) == 10
        assert message in capsys.readouterr().err
    one_quality = ("quality", *one[1:])
    assert main([*one_quality, "precision=bf17"]) == 10
    assert "precision: expected one of" in capsys.readouterr().err
    # In training it is refused, in inference not: the matrix shows both.
    assert main([*one, "scenario=single_stream"]) == 0
    assert "scenario: single_stream goes with phase=infer" in capsys.readouterr().out


def sweep(results: Path, *options: str) -> int:
    fixed = ("--workload", "ncf", "--framework", "pytorch", "--phase", "train", "runtime=native")
    return main(["sweep", "--grid", GRID, *fixed, "--results-dir", str(results), *options])


def measuring(
    results: Path, monkeypatch: pytest.MonkeyPatch, instead: Stub = lambda number: None
) -> list[int]:
    """Replace the run of a cell by a synthetic result; ``instead`` may end one otherwise. The batches run."""
    ran: list[int] = []

    def run(self: Runner, options: Sequence[str], timeout_s: float | None = None) -> RunExit:
        del self, timeout_s
        (batch,) = [int(one.removeprefix("batch=")) for one in options if one.startswith("batch=")]
        if (ended := instead(len(ran))) is not None:
            return ended
        ran.append(batch)
        good = Good(key=replace(MINI, batch=batch), run_hex=secrets.token_hex(4))
        return RunExit(0, 1.0, result(results, good), "", ())

    monkeypatch.setattr(Runner, "run", run)
    return ran


def cells(results: Path) -> list[int]:
    """The batches in the journal in their order, measurements of the reference cell included."""
    names = [line.options for line in journal.read(results)]
    return [int(one.removeprefix("batch=")) for options in names for one in options if "batch=" in one]


def killed_in(number: int, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the sweep in another process, which SIGKILL ends in its run ``number``."""
    child = os.fork()
    if not child:
        measuring(
            results, monkeypatch, lambda ran: os.kill(os.getpid(), signal.SIGKILL) if ran == number else None
        )
        sweep(results)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_killed_sweep_loses_the_run_that_was_killed_and_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, again = tmp_path / "whole", tmp_path / "again"
    measuring(whole, monkeypatch)
    assert sweep(whole, "--seed", "7") == 0
    order = cells(whole)
    assert sorted(order) == sorted([*BATCHES, BATCHES[0], BATCHES[0]])  # the reference cell three times
    assert order != sorted(order)

    with journal_with_seed(again, whole):
        pass
    killed_in(4, again, monkeypatch)
    killed_in(3, again, monkeypatch)
    assert cells(again) == order[:7]
    ran = measuring(again, monkeypatch)
    capfd.readouterr()
    assert sweep(again, "--format", "json") == 0
    shown = json.loads(capfd.readouterr().out)
    assert cells(again) == order
    assert ran == order[7:]
    assert shown["seed"] == 7
    assert [cell["outcome"] for cell in shown["cells"]] == ["ok"] * len(BATCHES)
    assert len(shown["reference"]["throughput_per_s"]) == 3
    assert shown["reference"]["change"] is not None

    ran = measuring(again, monkeypatch)
    assert sweep(again) == 0
    assert ran == []


def journal_with_seed(folder: Path, like: Path) -> Any:
    """The journal of ``folder`` with the first line of that of ``like``: its sweep and seed."""
    folder.mkdir()
    first = (like / journal.JOURNAL).read_bytes().split(b"\n")[0]
    (folder / journal.JOURNAL).write_bytes(first + b"\n")
    return journal.locked(folder)


@pytest.mark.parametrize(
    ("ended", "outcome", "code"),
    [
        (RunExit(20, 1.0, None, "a worker crashed", ("boom",)), "error", 1),
        (RunExit(130, 1.0, None, "it took longer than 5 s", (), timed_out=True), "timeout", 1),
        (RunExit(23, 1.0, None, "a worker timed out", ()), "timeout", 1),
        (RunExit(11, 1.0, None, "not on this device", ()), "skipped", 0),
    ],
    ids=["error", "time limit", "worker", "unsupported"],
)
def test_outcome_and_reason_of_a_cell_without_a_result(
    ended: RunExit,
    outcome: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    measuring(tmp_path, monkeypatch, lambda ran: ended if ran == 5 else None)
    monkeypatch.setattr("tests.unit.test_sweep_resume.GRID", "batch=16,32,48,64,80,96")
    assert sweep(tmp_path, "--seed", "1", "--timeout", "5") == code
    out = capfd.readouterr().out
    (line,) = [line for line in journal.read(tmp_path) if line.outcome != "ok"]
    assert (line.outcome, line.reason, line.exit_code) == (outcome, ended.reason, ended.exit_code)
    assert f"5 ok, 1 {outcome}" in out
    assert f"{outcome}: {ended.reason} [batch=" in out


def test_cell_that_reached_its_time_limit_is_run_again_with_a_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.unit.test_sweep_resume.GRID", "batch=16,32")
    late = RunExit(130, 5.0, None, "it took longer than 5 s", (), timed_out=True)
    measuring(tmp_path, monkeypatch, lambda ran: late if ran == 1 else None)
    assert sweep(tmp_path, "--timeout", "5") == 1
    ran = measuring(tmp_path, monkeypatch)
    assert sweep(tmp_path, "--timeout", "5") == 1
    assert ran == []
    assert "timeout: it took longer than 5 s" in capfd.readouterr().out
    assert sweep(tmp_path, "--timeout", "6") == 0
    assert len(ran) == 1


def test_results_on_one_disk_are_not_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = tmp_path / "disks.toml"
    folders = {name: tmp_path / name for name in ("fast", "slow")}
    for folder in folders.values():
        folder.mkdir()
    names.write_text("".join(f'{name} = "{folder}"\n' for name, folder in folders.items()))
    seen: list[str] = []

    def run(self: Runner, options: Sequence[str], timeout_s: float | None = None) -> RunExit:
        del self, timeout_s
        seen.extend(one for one in options if one.startswith(("data_root=", "disk=")))
        good = Good(key=replace(MINI, batch=16), run_hex=secrets.token_hex(4))
        return RunExit(0, 1.0, result(tmp_path / "results", good), "", ())

    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.setattr("tests.unit.test_sweep_resume.GRID", "disk=fast,slow batch=16")
    assert sweep(tmp_path / "results", "--disks", str(names)) == 0
    assert seen == [f'data_root="{folder}"' for folder in folders.values()]
    assert sweep(tmp_path / "results", "--disks", str(names)) == 0
    assert len(seen) == len(folders)
    unknown = ("--grid", "disk=fast,tape batch=16", "--disks", str(names))
    assert sweep(tmp_path / "results", *unknown, "--dry") == 10
    expected = "disk: expected the name of a folder in the file of DISKS, found "
    assert f"{expected}tape (those of the file are fast, slow)" in capfd.readouterr().err
    assert sweep(tmp_path / "results") == 10
    assert f"{expected}fast (no file was given)" in capfd.readouterr().err
    assert len(seen) == 2


def test_reference_cell_out_of_memory_is_measured_once_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def run(self: Runner, options: Sequence[str], timeout_s: float | None = None) -> RunExit:
        del self, timeout_s
        (batch,) = [int(one.removeprefix("batch=")) for one in options if one.startswith("batch=")]
        ran.append(batch)
        failed = 0 if batch == BATCHES[0] else None
        key = replace(MINI, batch=batch)
        good = Good(key=key, run_hex=secrets.token_hex(4), out_of_memory_in=failed)
        return RunExit(0 if failed is None else 21, 1.0, result(tmp_path, good), "", ())

    monkeypatch.setattr(Runner, "run", run)
    assert sweep(tmp_path) == 0
    assert sorted(ran) == BATCHES
    shown = capfd.readouterr().out
    assert "reference cell: oom, so that it shows no drift: name first in the grid the values" in shown
