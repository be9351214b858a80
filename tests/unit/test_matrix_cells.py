"""The cells of a matrix or sweep: pairs, the grid of a file, filters, and axes from options."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite import workloads
from suite.cli.matrix import matrix_axes
from suite.contract.traits import framework_names
from suite.plan.errors import BadConfiguration
from suite.sweep.cells import Cell, filter_cells, pair_cells, quality_cells
from suite.sweep.grid import grid_cells, parse_axes, parse_grid, with_axes
from suite.sweep.studies import read_sweep

GRID = """
study: A study
source: https://example.org/study
settings: {scale: mini, telemetry: false}
cells:
  - {workload: [ncf, gnmt], framework: [pytorch, mxnet], phase: train, batch: [1, 2]}
  - {workload: ncf, framework: pytorch, phase: infer}
"""


def write_sweep(tmp_path: Path, text: str, name: str = "study") -> str:
    (tmp_path / f"{name}.yaml").write_text(text)
    return str(tmp_path / f"{name}.yaml")


def test_pair_cells_has_every_pair_in_both_phases() -> None:
    cells = pair_cells()
    assert Cell(("workload=ncf", "framework=mxnet", "phase=infer")) in cells
    assert len(cells) == 2 * sum(len(workloads.frameworks(name)) for name in workloads.names())
    assert len(set(cells)) == len(cells)


def test_file_expands_each_entry_to_all_combinations(tmp_path: Path) -> None:
    study = read_sweep(write_sweep(tmp_path, GRID))
    assert (study.name, study.study, study.sources) == ("", "A study", ("https://example.org/study",))
    assert len(study.cells) == 2 * 2 * 2 + 1
    options = ("workload=gnmt", "framework=mxnet", "phase=train", "scale=mini", "telemetry=false", "batch=2")
    assert Cell(options) in study.cells


def test_entry_without_framework_and_phase_takes_all(tmp_path: Path) -> None:
    text = "cells: [{workload: ncf}]"
    cells = read_sweep(write_sweep(tmp_path, text)).cells
    assert {(cell.value("framework"), cell.value("phase")) for cell in cells} == {
        (framework, phase) for framework in framework_names() for phase in ("train", "infer")
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# @package _global_\nprecision: bf16\n", "expected cells, optionally"),
        ("{cells: [], batch: 3}", "expected cells, optionally .*found cells, batch"),
        ("cells: [{phase: train}]", r"cells\[0\]: expected a workload"),
        ("cells: [{workload: ncf, batch: []}]", "batch: expected one or several different values"),
        ("cells: [{workload: ncf, batch: [1, 1]}]", "batch: expected one or several different values"),
        (f"cells: [{{workload: ncf, batch: {[*range(1, 2001)]}}}]", "at most 10,000 cells, found 16,000"),
        ("cells: [1,\n", "expected YAML"),
    ],
)
def test_file_that_is_no_grid_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        read_sweep(write_sweep(tmp_path, text))


def test_unknown_sweep_suggests_the_nearest_name() -> None:
    with pytest.raises(BadConfiguration, match="did you mean titan_rtx_2019"):
        read_sweep("titan_rtx")


def test_options_replace_those_of_the_cells_and_commas_make_an_axis(tmp_path: Path) -> None:
    cells = read_sweep(write_sweep(tmp_path, GRID)).cells
    made = with_axes(cells, parse_axes(["batch=16,32", "scale=reference"]))
    assert {cell.value("batch") for cell in made} == {"16", "32"}
    assert {cell.value("scale") for cell in made} == {"reference"}
    assert len(made) == (2 * 2 + 1) * 2  # both batches of the study are replaced by the two options


def test_grid_has_every_combination_the_last_axis_fastest() -> None:
    cells = grid_cells(parse_grid("batch=32,64 runtime.cpus=1,1.5,2"))
    assert [cell.options for cell in cells] == [
        (f"batch={batch}", f"runtime.cpus={cpus}") for batch in (32, 64) for cpus in ("1", "1.5", "2")
    ]
    assert parse_grid("devices=[0],[1] runtime.cpuset=0-1") == {
        "devices": ("[0]", "[1]"),
        "runtime.cpuset": ("0-1",),
    }


def test_cell_that_the_file_skips_keeps_its_reason(tmp_path: Path) -> None:
    text = "cells: [{workload: ncf, framework: jax, phase: train, skip: not built}]"
    (cell,) = read_sweep(write_sweep(tmp_path, text)).cells
    assert (cell.skip, cell.value("skip")) == ("not built", None)


def test_quoted_comma_is_no_axis() -> None:
    (cell,) = with_axes([Cell(("workload=ncf",))], parse_axes(['devices="0,1"']))
    assert cell.options == ("workload=ncf", 'devices="0,1"')


@pytest.mark.parametrize("option", ["workload=ncf", "phase=train", "batch=[1"])
def test_matrix_refuses_invalid_options_and_its_flags(option: str) -> None:
    with pytest.raises(BadConfiguration):
        matrix_axes([option])


def test_filters_select_cells_and_refuse_unknown_values() -> None:
    selected = filter_cells(pair_cells(), workload=["ncf"], framework=["mxnet", "pytorch"], phase=[])
    assert {(cell.value("workload"), cell.value("framework")) for cell in selected} == {
        ("ncf", "mxnet"),
        ("ncf", "pytorch"),
    }
    with pytest.raises(BadConfiguration, match="did you mean pytorch"):
        filter_cells(pair_cells(), framework=["pytroch"])


def test_quality_cells_have_three_seeds_in_pytorch_and_one_in_the_others() -> None:
    cells = quality_cells()
    of = {
        name: [cell for cell in cells if cell.value("framework") == name and cell.value("workload") == "ncf"]
        for name in ("pytorch", "tensorflow", "mxnet")
    }
    assert [len(found) for found in of.values()] == [3, 1, 1]
    assert len({cell.value("nonce") for cell in of["pytorch"]}) == 3
    assert all(cell.value("mode") == "quality" for cell in cells)
    assert len(quality_cells(2)) == 2 * len({(c.value("workload"), c.value("framework")) for c in cells})
    assert max(len(cell.title) for cell in cells) < 90
    with pytest.raises(BadConfiguration, match="at least 1"):
        quality_cells(0)
