"""The table of published results in docs/performance.md, beside the newest submitted result of each cell."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from suite.log.reader import read_result
from suite.metrics.physical_limit import physical_limit
from suite.metrics.run import metrics_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "submissions" / "suite-reference" / "results"
SYSTEMS = ("h200-virtual-machine", "2x-h200-virtual-machine-one-run-per-gpu")  # runs on one GPU
FRAMEWORKS = {"PyTorch": "pytorch", "JAX": "jax", "TensorFlow": "tensorflow"}
COLUMNS = 11

Cell = tuple[str, str, str, int]


def section(title: str, page: str = "performance.md") -> list[list[str]]:
    """The cells of each line of a section of the page."""
    _, _, text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n## {title}\n")
    lines = text.partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def by_workload(title: str) -> dict[str, list[str]]:
    """The cells of each row of the table in a section, by the workload that the first one names."""
    found = (cells for cells in section(title) if len(cells) > 1 and "`" in cells[0])
    return {cells[0].split("`")[1]: cells for cells in found}


def rows() -> dict[Cell, list[str]]:
    """The cells of each row of the table of published results."""
    found = {}
    for cells in section("Published results"):
        if len(cells) == COLUMNS and cells[2] in FRAMEWORKS:
            workload, phase = cells[0].split("`")[1], cells[1].partition(",")[0]
            found[workload, phase, FRAMEWORKS[cells[2]], int(cells[3].replace(",", ""))] = cells
    return found


@cache
def newest(scenario: str = "offline") -> dict[Cell, tuple[str, dict[str, Any]]]:
    """Run id and metrics of the newest result of each cell on one H200 with synthetic data."""
    found: dict[Cell, tuple[str, dict[str, Any]]] = {}
    for folder in sorted(
        (one for name in SYSTEMS for one in (RESULTS / name).glob("*/*")), key=lambda one: one.name
    ):
        record = read_result(folder)
        key = record.header["key"]
        if key["scenario"] != scenario or key["data"] != "synthetic":
            continue
        found[key["workload"], key["phase"], key["framework"], key["batch"]] = (
            folder.name,
            {**metrics_of(record), "share": physical_limit(record)},
        )
    return found


def number(text: str) -> float:
    return float(text.split(maxsplit=1)[0].replace(",", ""))


def test_table_has_the_newest_result_of_each_cell() -> None:
    results, table = newest(), rows()
    assert len(table) >= 30
    for cell, cells in table.items():
        run_id, metrics = results[cell]
        _, _, _, _, rate, step, share, power, memory, _, log = cells
        value = {name: metrics[name].value for name in ("throughput_per_s", "step_mean_ms", "gpu_power_w")}
        assert number(rate) == pytest.approx(value["throughput_per_s"], rel=6e-4), cell
        assert number(step) == pytest.approx(value["step_mean_ms"], rel=0.01), cell
        assert number(share) == pytest.approx(metrics["share"].value, rel=0.006), cell
        assert number(power) == pytest.approx(value["gpu_power_w"], abs=0.51), cell
        assert number(memory) == pytest.approx(
            metrics["peak_device_memory_bytes"].value / 2**30, abs=0.051
        ), cell
        day, _, link = log.strip("[)").partition("](")
        folder = ROOT / "docs" / link
        assert (day, folder.name, folder.is_dir()) == (run_id[6:8], run_id, True), cell
        percent = metrics["throughput_low_per_s"].note.partition("±")[2].partition("%")[0]
        assert number(rate.partition("±")[2]) == pytest.approx(float(percent), rel=0.05, abs=0.006), cell


def test_latencies_at_batch_1_are_those_of_the_results() -> None:
    table = by_workload("Latency at batch 1")
    results = newest("single_stream")
    assert {workload for workload, *_ in results} == set(table)
    for (workload, *_), (_, metrics) in results.items():
        found = [number(cell) for cell in table[workload][1:]]
        names = ("step_p50_ms", "step_p90_ms", "step_p99_ms", "throughput_per_s", "share")
        assert found == pytest.approx([metrics[name].value for name in names], rel=0.005), workload


def test_rates_without_update_are_those_of_the_results() -> None:
    table = by_workload("Gradient without update")
    without = newest("forward_backward")
    assert {workload for workload, *_ in without} == set(table)
    for (workload, phase, framework, batch), (_, metrics) in without.items():
        rate, train = metrics["throughput_per_s"].value, newest()[workload, phase, framework, batch][1]
        assert number(table[workload][2]) == pytest.approx(rate, rel=6e-4)
        assert number(table[workload][3]) == pytest.approx(train["throughput_per_s"].value, rel=6e-4)
        update = 100 * (1 - train["throughput_per_s"].value / rate)
        assert number(table[workload][4]) == pytest.approx(update, abs=0.06)
        infer = newest().get((workload, "infer", framework, batch))
        if infer and "another computation" not in table[workload][1]:
            assert number(table[workload][1]) == pytest.approx(infer[1]["throughput_per_s"].value, rel=6e-4)


@pytest.mark.parametrize(
    ("framework", "columns"), [("JAX", {"train": 1, "infer": 2}), ("TensorFlow", {"train": 2, "infer": 5})]
)
def test_ratios_to_pytorch_are_those_of_the_results(framework: str, columns: dict[str, int]) -> None:
    results = newest()
    found: dict[str, list[str]] = {}
    compared = set()
    for cells in section(f"{framework} on a GPU", "performance-gpu.md"):
        if cells[0].startswith("`") and len(cells) > max(columns.values()):  # smaller tables follow
            found.setdefault(cells[0].strip("`"), cells)
    for (workload, phase, name, batch), (_, metrics) in results.items():
        pytorch = results.get((workload, phase, "pytorch", batch))
        if name == FRAMEWORKS[framework] and pytorch and workload in found:
            ratio = metrics["throughput_per_s"].value / pytorch[1]["throughput_per_s"].value
            assert number(found[workload][columns[phase]]) == pytest.approx(ratio, abs=0.0051), workload
            compared.add((workload, phase))
    assert len(compared) == 12
