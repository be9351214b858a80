"""Common mistakes in the options of a run: one sentence, the right exit code, no traceback."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from suite.cli.run import main
from suite.harness.attempts import LEDGER, count_attempt, next_attempt
from suite.plan.errors import BadConfiguration, DatasetProblem, Unsupported
from suite.plan.machine import Gpu, Machine
from suite.plan.plan import Plan
from suite.plan.resolve import resolve
from tests.unit.test_plan import LAPTOP, SERVER, benchmark, prepared, settings

OPTIONS = (
    "workload=ncf",
    "framework=pytorch",
    f"framework.python={sys.executable}",
    "data=synthetic",
    "dry=true",
)


@pytest.mark.parametrize(
    ("option", "code", "message"),
    [
        ("~phase", 10, "phase: expected a value"),
        ("~framework.threads", 10, "no threads"),
        ("workload.hyper=3", 10, "workload.hyper: expected names and values"),
        ("framework.variables=NCCL_ALGO:Ring", 10, "expected a list such as [NCCL_NVLS_ENABLE:0]"),
        ("framework.variables=[LD_PRELOAD:x]", 10, "framework.variables: expected NAME:value in each entry"),
        ("framework.variables=[NCCL_NET_PLUGIN:x]", 10, "found 'NCCL_NET_PLUGIN:x'"),
        ("framework.variables=[NCCL_DEBUG_FILE:x]", 10, "found 'NCCL_DEBUG_FILE:x'"),
        ("framework.variables=[NCCL_X:1,NCCL_X:2]", 10, "found 'NCCL_X:2'"),
        ("workload.hyper.rate=abc", 10, "workload.hyper.rate: expected a number such as 1e-3"),
        ("workload.hyper.rate=nan", 10, "expected a number"),
        ("cache_dir=/dev/null/x", 15, "Set CACHE_DIR"),
        ("results_dir=/dev/null/x", 15, "Set RESULTS_DIR"),
    ],
)
def test_wrong_option_is_refused(
    option: str, code: int, message: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path_options = [f"{name}={tmp_path / name}" for name in ("results_dir", "cache_dir")]
    assert main([*OPTIONS, *path_options, option]) == code
    output = capfd.readouterr()
    assert message in output.err + output.out
    assert "Traceback" not in output.err
    assert list(tmp_path.iterdir()) == []


def test_dry_run_is_refused_for_a_dataset_that_must_be_fetched(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [*OPTIONS, "scale=reference", "data=real", f"data_root={tmp_path}"]
    assert main(options) == DatasetProblem.code
    assert "make data WORKLOAD=ncf" in capfd.readouterr().out


def test_corrupt_dataset_is_named_if_data_is_auto(tmp_path: Path) -> None:
    (tmp_path / "ml-1m").mkdir()
    with pytest.raises(DatasetProblem, match="ml-1m"):
        resolve(settings(f"data_root={tmp_path}"), SERVER)


def test_multirun_writes_nothing_to_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*OPTIONS, "phase=train,infer", "-m"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("value", "spelling"), [("0.001", "1e-3"), ("1e-3", "1e-3"), ("2e-3", "0.002")])
def test_hyperparameter_equal_to_the_default_has_its_spelling(value: str, spelling: str) -> None:
    assert resolve(settings(f"workload.hyper.rate={value}"), LAPTOP).hyper["rate"] == spelling


def logged(plan: Plan, *overrides: str) -> list[str]:
    plan = replace(plan, settings=replace(plan.settings, overrides=overrides))
    texts: list[str] = prepared(plan).header["overrides"]
    return texts


@pytest.mark.parametrize(
    "option",
    ["data_root=/home/alice", "++data_root=/home/alice", "results_dir=alice", "framework.python=~alice"],
)
def test_no_path_is_logged(option: str) -> None:
    plan = resolve(settings("data=synthetic"), LAPTOP)
    (text,) = logged(plan, option)
    assert "alice" not in text
    assert text.endswith("=<path>")


def test_fingerprint_may_be_asked_for_in_mode_quality() -> None:
    data = prepared(resolve(settings("mode=quality", "fingerprint=true"), LAPTOP)).header
    assert data["settings"]["fingerprint"] is False
    assert "fingerprint=true" in data["overrides"]


def test_unknown_hyperparameter_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="did you mean rate"):
        resolve(settings("+workload.hyper.rat=1"), LAPTOP)


@pytest.mark.parametrize("option", ["devices=[1]", 'devices="[1]"', "devices=[GPU-b]"])
def test_devices_can_be_selected(option: str) -> None:
    gpus = (Gpu("GPU-a", "NVIDIA H200", 141 << 30), Gpu("GPU-b", "NVIDIA H200", 141 << 30))
    plan = resolve(settings(option, "data=synthetic"), Machine(16, gpus, "0,1"))
    assert (benchmark(plan).devices, plan.device_ids, plan.visible_devices) == (1, ("GPU-b",), "GPU-b")


def test_one_device_by_two_names_is_refused() -> None:
    gpus = (Gpu("GPU-a", "NVIDIA H200", 141 << 30), Gpu("GPU-b", "NVIDIA H200", 141 << 30))
    with pytest.raises(Unsupported, match=r"devices: expected \[0,GPU-a\], each a GPU of its own, found"):
        resolve(settings("devices=[0,GPU-a]", "data=synthetic"), Machine(16, gpus, "0,1"))


@pytest.mark.parametrize(
    ("option", "error"), [("[7]", Unsupported), ("[x]", BadConfiguration), ("[]", BadConfiguration)]
)
def test_missing_device_is_refused(option: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="devices: expected"):
        resolve(settings(f"devices={option}", "data=synthetic"), SERVER)


def test_broken_ledger_error_names_its_line(tmp_path: Path) -> None:
    key = resolve(settings("data=synthetic"), LAPTOP).key
    count_attempt(tmp_path, key, "submission", "a")
    with (tmp_path / LEDGER).open("a") as ledger:
        ledger.write('{"key":')
    with pytest.raises(OSError, match="expected an attempt in line 2") as caught:
        next_attempt(tmp_path, key)
    assert caught.value.strerror is not None
