"""A matrix skips cells that have a result of equal settings, code and machine, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.log.canonical import encode, sha256_hex
from suite.plan.custom import NO_CUSTOM_CODE
from suite.plan.header import settings_of
from suite.plan.machine import Machine
from suite.sweep import planning
from suite.sweep.cells import Cell
from suite.sweep.planning import PlannedCell, plan_cells
from suite.sweep.results import last_run
from tests.fixtures.forging import Events, lines_of, rewrite
from tests.fixtures.good_log import MINI, Good, write_good
from tests.unit.test_plan import LAPTOP, SERVER, planned, settings

TRAIN = Cell(("workload=ncf", "framework=pytorch", "phase=train"))
CODE = "c" * 64
CPU = "Imagined CPU"  # the processor of the synthetic logs


@pytest.fixture(autouse=True)
def _fixed_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_processor_name", lambda: CPU)


def plan(results: Path, cell: Cell = TRAIN, machine: Machine = LAPTOP) -> PlannedCell:
    (one,) = plan_cells([cell], results, [f"results_dir={results}", "runtime=native"], CODE, machine)
    return one


def result(results: Path, good: Good | None = None, **header: Any) -> Path:
    """Write a synthetic result of the cell ``TRAIN`` with changed fields of its header."""
    good = good or Good()
    options = [
        f"{name}={value}" for name, value in {"phase": good.key.phase, "batch": good.key.batch}.items()
    ]
    resolved = planned(settings(*options, "runtime=native"), LAPTOP)

    def forge(events: Events) -> None:
        data = events[0]["data"]
        data["settings"] = {**settings_of(resolved, NO_CUSTOM_CODE), **header.pop("settings", {})}
        data["settings_digest"] = sha256_hex(encode(data["settings"]))
        nulls = [name for name, value in data["settings"].items() if value is None]
        reasons = {path: why for path, why in data["reasons"].items() if not path.startswith("settings.")}
        data["reasons"] = reasons | {f"settings.{name}": "not set" for name in nulls}
        data |= {"code_digest": CODE, **header}

    return rewrite(write_good(results, good), forge)


def test_cell_with_an_accepted_result_is_not_run_again(tmp_path: Path) -> None:
    folder = result(tmp_path)
    one = plan(tmp_path)
    assert not one.to_run
    assert one.entry.row is not None
    assert (one.entry.status, one.entry.row.run_id) == ("accepted", folder.name)
    assert "samples/s" in one.entry.text


def test_newest_of_several_results_is_used(tmp_path: Path) -> None:
    result(tmp_path)
    newer = result(tmp_path, Good(run_hex="ffffffff"))

    def later(events: Events) -> None:
        for event in events:
            event["wall"] = event["wall"].replace("2026-", "2027-")
            if event["kind"] == "clock":  # TIME-016: lines and clocks have one date
                event["data"]["realtime"][0] += 365 * 86_400

    rewrite(newer, later)
    one = plan(tmp_path)
    assert one.entry.row is not None
    assert one.entry.row.run_id == newer.name


@pytest.mark.parametrize(
    "changed",
    [
        {"code_digest": "d" * 64},
        {"settings": {"threads": 3}},
        {"settings": {"custom_pair": "e" * 64}},
        {"nonce": "f" * 64},
    ],
    ids=["code", "threads", "pair", "nonce"],
)
def test_cell_is_run_if_its_result_has_other_settings_or_code(
    tmp_path: Path, changed: Mapping[str, Any]
) -> None:
    result(tmp_path, **changed)
    assert plan(tmp_path).to_run


def test_cell_is_run_if_its_result_is_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result(tmp_path)
    monkeypatch.setattr(planning, "_processor_name", lambda: "Another CPU")
    assert plan(tmp_path).to_run


def test_cell_is_run_if_its_result_is_rejected_or_partial(tmp_path: Path) -> None:
    folder = result(tmp_path)

    def too_fast(events: Events) -> None:
        events[-1]["data"]["claims"]["throughput"] = (1e9).hex()

    rewrite(folder, too_fast)
    assert plan(tmp_path).to_run
    folder.rename(folder.with_name(folder.name + ".partial"))
    assert plan(tmp_path).to_run


def test_cell_that_ran_out_of_memory_is_not_run_again(tmp_path: Path) -> None:
    result(tmp_path, Good(out_of_memory_in=0))
    one = plan(tmp_path)
    assert (one.to_run, one.entry.status, one.entry.text, one.entry.settled) == (False, "OOM", "OOM", True)


def test_estimate_uses_results_of_equal_settings_and_any_code(tmp_path: Path) -> None:
    assert plan(tmp_path).seconds is None
    folder = result(tmp_path, code_digest="d" * 64)
    one = plan(tmp_path)
    assert one.to_run
    assert one.seconds == lines_of(folder)[-1]["mono_ns"] / 1e9
    other = plan(tmp_path, Cell((*TRAIN.options, "precision=bf16")))
    assert other.seconds is None


KUBERNETES = (
    "runtime=native",
    "launcher=kubernetes",
    f"launcher.image=r.example/suite@sha256:{'a' * 64}",
    "launcher.claim=results",
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("precision=tf32",), "tf32"),
        (("loader=dali",), "loader: ncf reads no images"),
        (("runtime=docker", "launcher=slurm"), "submit the whole matrix or sweep as a job"),
        (("devices=2", "nodes=2"), "nodes: the cells run on this machine, found 2"),
        (KUBERNETES, "launcher: expected local, found kubernetes"),
    ],
)
def test_impossible_cell_is_not_available_with_its_reason(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    one = plan(tmp_path, Cell((*TRAIN.options, *options)))
    assert (one.to_run, one.entry.status) == (False, "N/A")
    assert message in one.entry.why
    assert one.entry.group == ("practice", "mini", "real", "throughput")
    assert one.entry.key["batch_per_device"] == 256


def test_more_devices_than_a_server_has_are_not_available(tmp_path: Path) -> None:
    one = plan(tmp_path, Cell((*TRAIN.options, "devices=64", "framework=tensorflow")), SERVER)
    assert (one.entry.status, one.entry.group[:3]) == ("N/A", ("open", "reference", "synthetic"))
    assert "devices: expected 64, found" in one.entry.why


@pytest.mark.parametrize(
    ("name", "message"),
    [("workload=googlenet_v9", "googlenet_v9 is not in this version")],
)
def test_unknown_workload_is_not_available(tmp_path: Path, name: str, message: str) -> None:
    cell = Cell((name, "framework=pytorch", "phase=train", "scale=reference", "data=synthetic", "batch=64"))
    one = plan(tmp_path, cell)
    assert (one.entry.status, one.entry.group) == (
        "N/A",
        ("open", "reference", "synthetic", "throughput"),
    )
    assert message in one.entry.why


@pytest.mark.parametrize(
    ("options", "code"), [(("scenario=single_stream",), 10), (("pair=/nowhere.py",), 10), (("batch=x",), 10)]
)
def test_refused_cell_fails_with_its_exit_code(tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    one = plan(tmp_path, Cell((*TRAIN.options, *options)))
    assert (one.to_run, one.entry.status, one.exit_code) == (False, "failed", code)
    assert one.entry.why


def test_result_of_another_batch_is_not_used(tmp_path: Path) -> None:
    result(tmp_path, Good(key=replace(MINI, batch=512)))
    assert plan(tmp_path).to_run
    assert not plan(tmp_path, Cell((*TRAIN.options, "batch=512"))).to_run


def test_result_of_a_batch_search_is_used_for_batch_max_only(tmp_path: Path) -> None:
    cell = Cell((*TRAIN.options, "batch=max"))
    first = plan(tmp_path, cell)
    assert first.to_run
    assert first.entry.key["batch_per_device"] == "max"
    search = {"batch_search": [[256, 3, "fits"], [512, 3, "out_of_memory"], [256, 110, "fits"]]}
    folder = result(tmp_path, settings=search)
    assert plan(tmp_path).to_run, "the result of a batch search is not used for a given batch"
    one = plan(tmp_path, cell)
    assert one.entry.row is not None
    assert (one.entry.status, one.entry.row.run_id) == ("accepted", folder.name)
    assert one.entry.key["batch_per_device"] == 256


def test_dry_run_takes_its_estimate_from_the_last_run_of_equal_settings(tmp_path: Path) -> None:
    options = ("phase=train", "runtime=native", f"results_dir={tmp_path}")
    assert last_run(planned(settings(*options), LAPTOP), NO_CUSTOM_CODE) is None
    folder = result(tmp_path)
    *_, footer = lines_of(folder)
    for nonce in ((), (f"nonce={'a' * 64}",)):  # another seed takes as long
        last = last_run(planned(settings(*options, *nonce), LAPTOP), NO_CUSTOM_CODE)
        assert last is not None
        assert (last.folder, last.seconds) == (folder, footer["mono_ns"] / 1e9)
    assert last_run(planned(settings(*options, "phase=infer"), LAPTOP), NO_CUSTOM_CODE) is None
