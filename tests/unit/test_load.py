"""PHASE=load: the plan, the worker's step, the metrics, and which side limits a run on real data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from suite import workloads
from suite.audit.quote import fields_of, parse, sentence
from suite.checker import check_result
from suite.cli import main
from suite.common.stream import digest_arrays
from suite.compare.input_bound import INPUT, MODEL, input_bounds
from suite.compare.result_row import ResultRow, row_of
from suite.contract import LOAD, Key
from suite.log.reader import read_result
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of, title
from suite.plan.custom import NO_CUSTOM_CODE
from suite.plan.errors import BadConfiguration, Unsupported
from suite.report.explanation import explain_speed
from suite.report.markdown import to_markdown
from suite.report.summary import tables_of, to_json
from suite.report.summary_text import print_tables
from suite.report.table import print_table
from suite.sweep.results import configuration, finished_results
from suite.worker.load import CountedData, Delivery
from tests.fixtures import image_files
from tests.fixtures.forged import put
from tests.fixtures.forged_storage import IN_RECORDS, LOADED
from tests.fixtures.forging import rewrite
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.good_run import IMAGE_BYTES, SHARD_BYTES
from tests.unit.test_plan import SERVER, planned, settings

BATCH = 16


# The plan


def test_load_has_a_kind_a_key_and_no_model(tmp_path: Path) -> None:
    plan = planned(settings("phase=load", f"data_root={tmp_path}", workload="resnet50"), SERVER)
    assert isinstance(plan.key, Key)
    assert (plan.kind, plan.key.phase, plan.key.data) == (LOAD, "load", "real")
    assert (plan.fingerprint, plan.key.strategy, plan.device) == (False, "independent", "cuda:0")
    assert (plan.key.of_batches.phase, plan.key.loads) == ("train", True)
    assert replace(plan.key, phase="load_infer").of_batches.phase == "infer"
    assert "-resnet50-pytorch-load-" in plan.run_id


def test_result_of_a_load_is_found_again(tmp_path: Path) -> None:
    """A sweep that continues does not measure it twice."""
    plan = planned(settings("phase=load", f"data_root={tmp_path}", workload="resnet50"), SERVER)
    write_good(tmp_path, LOADED)
    (found,) = finished_results(tmp_path)
    assert found.configuration["hyper"] == configuration(plan, NO_CUSTOM_CODE)["hyper"] == {}


@pytest.mark.parametrize(
    ("arguments", "error", "expected"),
    [
        (("precision=bf16",), BadConfiguration, "precision: a load has no model"),
        (("data=synthetic",), BadConfiguration, "a load reads the dataset's files"),
        (("+workload.hyper.crop_area=0.5",), BadConfiguration, "hyper: a load has no model"),
        (("min_seconds=10",), BadConfiguration, "min_seconds: a load has no probes"),
        (("batch=max",), BadConfiguration, "batch: a load has no probes"),
        (("mode=quality",), BadConfiguration, "found phase=load"),
        (("strategy=allreduce", "devices=2"), BadConfiguration, "a load exchanges no gradients"),
        (("scenario=single_stream",), BadConfiguration, "single_stream goes with phase=infer"),
    ],
)
def test_load_refuses_options_of_a_model(
    arguments: tuple[str, ...], error: type[Exception], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=expected):
        planned(settings("phase=load", *arguments, f"data_root={tmp_path}", workload="resnet50"), SERVER)


@pytest.mark.parametrize("workload", ["ncf", "resnet50_cifar10"])
def test_load_needs_image_files(workload: str) -> None:
    with pytest.raises(Unsupported, match="reads no image files"):
        planned(settings("phase=load", workload=workload), SERVER)


# The worker


class Device:
    """Feeds as frameworks do, to a device that keeps the last batch."""

    def feed(self, data: Any, index: int) -> dict[str, Any]:
        return {name: np.array(array) for name, array in data.batch(index).items()}


@pytest.mark.parametrize("phase", ["train", "infer"])
def test_step_delivers_the_batch_that_a_model_would_take(phase: str, tmp_path: Path) -> None:
    folder = image_files.with_lists(image_files.folders(tmp_path))
    job = replace(image_files.job(folder, phase=phase, threads=1), loader="pillow")
    data = CountedData(workloads.open_data(job))  # type: ignore[arg-type]
    delivery = Delivery(Device(), data)
    for step in range(3):
        delivery.step(step)
    assert len(delivery.collect()) == 3
    assert delivery.collect() == []
    assert delivery.parameters() == {}
    wanted = workloads.open_data(job)
    for step in range(3):
        arrays = wanted.batch(step)
        assert data.digests([step])[0] == digest_arrays(arrays)
        assert data.sizes[step] == sum(array.nbytes for array in arrays.values())
    split = "train" if phase == "train" else "val"
    sizes = sorted(path.stat().st_size for path in (folder / split).rglob("*.*"))
    assert sum(sizes[:4]) <= data.images.stored_bytes(0) <= sum(sizes[-4:])


# What is shown


def test_metrics_are_rates_of_bytes_without_an_input_wait(tmp_path: Path) -> None:
    record = read_result(write_good(tmp_path, LOADED))
    found = metrics_of(record)
    windows = sum(repeat.window_ns or 0 for repeat in record.repeats) / 1e9
    for name, each in (("files_read", BATCH * IMAGE_BYTES), ("batches_delivered", SHARD_BYTES)):
        assert found[f"{name}_bytes"].value == 100 * each
        assert found[f"{name}_mb_per_s"].value == pytest.approx(5 * 100 * each / 1e6 / windows)
    assert found["input_wait_percent"].value is None
    assert "batches are read in parallel" in found["step_p50_ms"].reason
    assert "load (the input pipeline alone, no model), loader native" in title(record)
    assert "fp32" not in title(record)
    assert "MB/s read and" in explain_speed(record)
    assert "physical limit" not in explain_speed(record)
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    print_table(record, console)
    assert "pillow 12.3.0, from files, threads per rank: 2" in console.export_text()


def test_publishable_sentence_says_that_no_model_ran(tmp_path: Path) -> None:
    record = read_result(write_good(tmp_path, LOADED))
    fields = fields_of(record, "L1", None)
    text = sentence(fields)
    assert "load: the input pipeline alone, without a model" in text
    assert parse(text) == fields


def test_summary_has_a_table_of_loads(tmp_path: Path) -> None:
    (table,) = tables_of([row_of(write_good(tmp_path, LOADED))])
    assert (table.mode, table.data, table.rows[0].key["phase"]) == (LOAD, "real", "load")
    assert "precision" not in table.rows[0].key
    assert table.cells(table.rows[0])["batches_delivered_mb_per_s"] > 0
    assert "## practice division, input pipelines alone, without a model" in to_markdown([table])


def test_fingerprint_may_be_asked_for(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, LOADED), put("header", "overrides", ["fingerprint=true"]))
    assert check_result(folder).findings == ()


def test_row_states_the_storage_format(tmp_path: Path) -> None:
    """It was missing: the column was empty, and files and records were one cell of an advice."""
    assert row_of(write_good(tmp_path / "records", IN_RECORDS)).settings["storage"] == "recordio"
    assert "storage" not in row_of(write_good(tmp_path / "files", LOADED)).settings


# Which side limits a run


def three(folder: Path) -> list[Path]:
    """Inference on real data, on synthetic data, and a load for it; 2, 1 and 1.8 ms a step."""
    infer = replace(LOADED.key, phase="infer")
    goods = (
        Good(key=infer, step_ns=2_000_000),
        Good(key=replace(infer, data="synthetic"), step_ns=1_000_000, run_hex="0a1b2c3e"),
        Good(key=replace(infer, phase="load_infer"), step_ns=1_800_000),
    )
    return [write_good(folder, good) for good in goods]


def rate(row: ResultRow, value: float) -> ResultRow:
    metrics = {**row.metrics, "throughput_per_s": Metric(value, "images/s")}
    return replace(row, metrics=metrics)


def test_limit_is_the_slower_side(tmp_path: Path) -> None:
    real, synthetic, load = map(row_of, three(tmp_path))
    (found,) = input_bounds([rate(real, 3900), rate(synthetic, 6970), rate(load, 4200)])
    assert (found.limit, found.limited_by) == (4200, INPUT)
    assert found.share == pytest.approx(3900 / 4200)
    assert "3,900 images/s are 92.9 % of min(synthetic 6,970, load 4,200)" in found.sentence
    (found,) = input_bounds([rate(load, 21_000), rate(synthetic, 6970), rate(real, 6500)])
    assert (found.limit, found.limited_by) == (6970, MODEL)
    (found,) = input_bounds([rate(load, 1), rate(load, 21_000), rate(synthetic, 6970), rate(real, 6500)])
    assert found.load == 21_000


@pytest.mark.parametrize(
    ("at", "changes"),
    [
        (2, {"phase": "load"}),
        (2, {"batch_per_device": 32}),
        (2, {"cache": "cold"}),
        (1, {"precision": "bf16"}),
        (1, {"framework": "jax"}),
    ],
)
def test_results_of_other_keys_are_no_sides(at: int, changes: dict[str, Any], tmp_path: Path) -> None:
    rows = list(map(row_of, three(tmp_path)))
    assert len(input_bounds(rows)) == 1
    rows[at] = replace(rows[at], key={**rows[at].key, **changes})
    assert input_bounds(rows) == []


@pytest.mark.parametrize("name", ["loader", "storage", "threads"])
def test_results_of_other_settings_are_no_sides(name: str, tmp_path: Path) -> None:
    rows = list(map(row_of, three(tmp_path)))
    assert len(input_bounds(rows)) == 1
    rows[2] = replace(rows[2], settings={**rows[2].settings, name: "another"})
    assert input_bounds(rows) == []
    assert input_bounds([replace(row, metrics={}) for row in map(row_of, three(tmp_path / "again"))]) == []


def test_summary_and_compare_state_the_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = three(tmp_path)
    tables = tables_of(list(map(row_of, folders)))
    (bound,) = input_bounds(row for table in tables for row in table.rows)
    assert bound.limited_by == INPUT
    console = Console(width=400, record=True, quiet=False, file=(tmp_path / "out").open("w"))
    print_tables(tables, console)
    assert f"input: {bound.sentence}" in console.export_text()
    (stated,) = json.loads(to_json(tables))["input_bounds"]
    assert (stated["share"], stated["limited_by"]) == (pytest.approx(bound.share), INPUT)
    assert main(["compare", *map(str, folders)]) == 0
    assert bound.sentence in capsys.readouterr().out
    assert main(["compare", *map(str, (folders[0], folders[1], write_good(tmp_path / "b", LOADED)))]) == 4
    assert "beside a load, expected a run on real data" in capsys.readouterr().err
    loads = [write_good(tmp_path / name, replace(LOADED, run_hex=name * 8)) for name in "cde"]
    assert main(["compare", *map(str, loads)]) == 0
    assert "input" not in capsys.readouterr().out.splitlines()[-1]
