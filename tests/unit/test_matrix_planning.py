"""What a matrix finds done: results of the same settings, code and machine, and no others."""

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
from suite.sweep.planning import Planned, plan_cells
from tests.fixtures.forging import Events, lines_of, rewrite
from tests.fixtures.good_log import MINI, Good, write_good
from tests.unit.test_plan import LAPTOP, SERVER, planned, settings

TRAIN = Cell(("workload=ncf", "framework=pytorch", "phase=train"))
CODE = "c" * 64
HERE = "Imagined CPU"  # what the imagined logs ran on


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_processor", lambda: HERE)


def plan(results: Path, cell: Cell = TRAIN, machine: Machine = LAPTOP) -> Planned:
    (one,) = plan_cells([cell], results, [f"results_dir={results}", "runtime=native"], CODE, machine)
    return one


def result(results: Path, good: Good | None = None, **header: Any) -> Path:
    """An imagined result of what ``TRAIN`` resolves to, with these fields of its header changed."""
    good = good or Good()
    words = [f"{name}={value}" for name, value in {"phase": good.key.phase, "batch": good.key.batch}.items()]
    resolved = planned(settings(*words, "runtime=native"), LAPTOP)

    def forge(events: Events) -> None:
        data = events[0]["data"]
        data["settings"] = {**settings_of(resolved, NO_CUSTOM_CODE), **header.pop("settings", {})}
        data["settings_digest"] = sha256_hex(encode(data["settings"]))
        nulls = [name for name, value in data["settings"].items() if value is None]
        kept = {path: why for path, why in data["reasons"].items() if not path.startswith("settings.")}
        data["reasons"] = kept | {f"settings.{name}": "not set" for name in nulls}
        data |= {"code_digest": CODE, **header}

    return rewrite(write_good(results, good), forge)


def test_an_accepted_result_of_the_same_settings_and_code_is_not_run_again(tmp_path: Path) -> None:
    folder = result(tmp_path)
    one = plan(tmp_path)
    assert not one.to_run
    assert one.entry.row is not None
    assert (one.entry.status, one.entry.row.run_id) == ("accepted", folder.name)
    assert "samples/s" in one.entry.text


def test_the_newest_of_several_counts(tmp_path: Path) -> None:
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
def test_a_result_of_something_else_is_no_reason_not_to_run(
    tmp_path: Path, changed: Mapping[str, Any]
) -> None:
    result(tmp_path, **changed)
    assert plan(tmp_path).to_run


def test_a_result_of_another_machine_is_no_reason_not_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result(tmp_path)
    monkeypatch.setattr(planning, "_processor", lambda: "Another CPU")
    assert plan(tmp_path).to_run


def test_a_rejected_or_partial_result_is_no_reason_not_to_run(tmp_path: Path) -> None:
    folder = result(tmp_path)

    def too_fast(events: Events) -> None:
        events[-1]["data"]["claims"]["throughput"] = (1e9).hex()

    rewrite(folder, too_fast)
    assert plan(tmp_path).to_run
    folder.rename(folder.with_name(folder.name + ".partial"))
    assert plan(tmp_path).to_run


def test_out_of_memory_is_a_result(tmp_path: Path) -> None:
    result(tmp_path, Good(out_of_memory_in=0))
    one = plan(tmp_path)
    assert (one.to_run, one.entry.status, one.entry.text, one.entry.settled) == (False, "OOM", "OOM", True)


def test_times_come_from_earlier_results_of_the_same_settings_under_any_code(tmp_path: Path) -> None:
    assert plan(tmp_path).seconds is None
    folder = result(tmp_path, code_digest="d" * 64)
    one = plan(tmp_path)
    assert one.to_run
    assert one.seconds == lines_of(folder)[-1]["mono_ns"] / 1e9
    other = plan(tmp_path, Cell((*TRAIN.words, "precision=bf16")))
    assert other.seconds is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("devices=2",), "devices: the pairs of this version run on one device; use devices=1"),
        (("precision=tf32",), "tf32"),
        (("loader=dali",), "loader: ncf reads no images"),
        (("runtime=docker", "launcher=slurm"), "make the matrix itself a job"),
    ],
)
def test_what_this_machine_cannot_do_is_not_available_and_says_why(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    one = plan(tmp_path, Cell((*TRAIN.words, *words)))
    assert (one.to_run, one.entry.status) == (False, "N/A")
    assert says in one.entry.why
    assert one.entry.group == ("practice", "mini", "real", "throughput")
    assert one.entry.key["batch_per_device"] == 256


def test_several_devices_are_not_available_on_a_server_either(tmp_path: Path) -> None:
    one = plan(tmp_path, Cell((*TRAIN.words, "devices=2")), SERVER)
    assert (one.entry.status, one.entry.group[:3]) == ("N/A", ("open", "reference", "synthetic"))
    assert "run on one device" in one.entry.why


@pytest.mark.parametrize(
    ("name", "says"),
    [("workload=googlenet_v9", "googlenet_v9 is not in this version")],
)
def test_a_workload_that_is_still_to_come_is_not_available(tmp_path: Path, name: str, says: str) -> None:
    cell = Cell((name, "framework=pytorch", "phase=train", "scale=reference", "data=synthetic", "batch=64"))
    one = plan(tmp_path, cell)
    assert (one.entry.status, one.entry.group) == (
        "N/A",
        ("open", "reference", "synthetic", "throughput"),
    )
    assert says in one.entry.why


@pytest.mark.parametrize(
    ("words", "code"), [(("scenario=single_stream",), 10), (("pair=/nowhere.py",), 10), (("batch=x",), 10)]
)
def test_a_cell_that_is_refused_fails_by_itself(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    one = plan(tmp_path, Cell((*TRAIN.words, *words)))
    assert (one.to_run, one.entry.status, one.exit_code) == (False, "failed", code)
    assert one.entry.why


def test_a_key_of_another_batch_is_another_cell(tmp_path: Path) -> None:
    result(tmp_path, Good(key=replace(MINI, batch=512)))
    assert plan(tmp_path).to_run
    assert not plan(tmp_path, Cell((*TRAIN.words, "batch=512"))).to_run


def test_a_batch_that_was_searched_for_is_done_whatever_came_out(tmp_path: Path) -> None:
    cell = Cell((*TRAIN.words, "batch=max"))
    first = plan(tmp_path, cell)
    assert first.to_run
    assert first.entry.key["batch_per_device"] == "max"
    search = {"batch_search": [[256, 3, "fits"], [512, 3, "out_of_memory"], [256, 110, "fits"]]}
    folder = result(tmp_path, settings=search)
    assert plan(tmp_path).to_run, "a batch that was searched for is no answer to a given one"
    one = plan(tmp_path, cell)
    assert one.entry.row is not None
    assert (one.entry.status, one.entry.row.run_id) == ("accepted", folder.name)
    assert one.entry.key["batch_per_device"] == 256
