"""The cells of a matrix: pairs, the grid of an experiment, filters, and axes from options."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite import workloads
from suite.cli import main
from suite.cli.overrides import check_overrides
from suite.contract.traits import framework_names
from suite.plan.errors import BadConfiguration
from suite.plan.options import by_name
from suite.sweep.cells import (
    EXPERIMENTS,
    Cell,
    filter_cells,
    pair_cells,
    quality_cells,
    read_experiment,
    with_options,
)

NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
WORKLOADS = {  # all workloads that the studies may name
    *("resnet50_cifar10", "inception_bn_small", "alexnet", "vgg16", "googlenet", "inception_v3", "resnet50"),
    *("resnet152", "faster_rcnn", "gnmt", "ncf", "word2vec", "lstm_ptb"),
}
GRID = """
matrix:
  study: A study
  source: https://example.org/study
  settings: {scale: mini, telemetry: false}
  cells:
    - {workload: [ncf, gnmt], framework: [pytorch, mxnet], phase: train, batch: [1, 2]}
    - {workload: ncf, framework: pytorch, phase: infer}
"""


def write_experiment(tmp_path: Path, text: str, name: str = "study") -> str:
    (tmp_path / f"{name}.yaml").write_text(text)
    return str(tmp_path / f"{name}.yaml")


def test_pair_cells_has_every_pair_in_both_phases() -> None:
    cells = pair_cells()
    assert Cell(("workload=ncf", "framework=mxnet", "phase=infer")) in cells
    assert len(cells) == 2 * sum(len(workloads.frameworks(name)) for name in workloads.names())
    assert len(set(cells)) == len(cells)


def test_experiment_expands_each_entry_to_all_combinations(tmp_path: Path) -> None:
    study = read_experiment(write_experiment(tmp_path, GRID))
    assert (study.name, study.study, study.sources) == ("study", "A study", ("https://example.org/study",))
    assert len(study.cells) == 2 * 2 * 2 + 1
    options = ("workload=gnmt", "framework=mxnet", "phase=train", "scale=mini", "telemetry=false", "batch=2")
    assert Cell(options) in study.cells


def test_entry_without_framework_and_phase_takes_all(tmp_path: Path) -> None:
    text = "matrix: {study: a, source: b, cells: [{workload: ncf}]}"
    cells = read_experiment(write_experiment(tmp_path, text)).cells
    assert {(cell.value("framework"), cell.value("phase")) for cell in cells} == {
        (framework, phase) for framework in framework_names() for phase in ("train", "infer")
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_sources_and_valid_cells(name: str) -> None:
    study = read_experiment(name)
    assert study.note
    assert all(source.startswith("http") for source in study.sources)
    for cell in study.cells:
        assert cell.value("workload") in WORKLOADS
        assert cell.value("phase") in by_name()["phase"].choices()
        assert cell.value("precision") in by_name()["precision"].choices()
        assert cell.value("scale") == "reference"
        assert cell.value("data") in ("real", "synthetic")
        check_overrides(
            ["workload=ncf", *(option for option in cell.options if not option.startswith("workload="))]
        )


def test_experiments_are_the_five_studies() -> None:
    assert NAMES == ["gpu_cloud_2018", "mxnet_hardware", "p100_scaling", "tensorflow_2017", "titan_rtx_2019"]


@pytest.mark.parametrize("name", NAMES)
def test_run_refuses_an_experiment_that_is_a_matrix(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "workload=ncf", "framework=pytorch", f"+experiment={name}"]) == BadConfiguration.code
    assert f"make matrix EXPERIMENT={name}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# @package _global_\nprecision: bf16\n", r"suite run \+experiment=study"),
        ("matrix: {study: a, source: b, cells: [], batch: 3}", "expected study, source and cells"),
        ("matrix: {study: a, cells: []}", "expected study, source and cells"),
        ("matrix: {study: a, source: b, cells: [{phase: train}]}", r"cells\[0\]: expected a workload"),
        ("matrix: [1,\n", "expected YAML"),
    ],
)
def test_read_experiment_refuses_invalid_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        read_experiment(write_experiment(tmp_path, text))


def test_unknown_experiment_suggests_the_nearest_name() -> None:
    with pytest.raises(BadConfiguration, match="did you mean titan_rtx_2019"):
        read_experiment("titan_rtx")


def test_options_replace_those_of_the_cells_and_commas_make_an_axis(tmp_path: Path) -> None:
    cells = read_experiment(write_experiment(tmp_path, GRID)).cells
    made = with_options(cells, ["batch=16,32", "scale=reference"])
    assert {cell.value("batch") for cell in made} == {"16", "32"}
    assert {cell.value("scale") for cell in made} == {"reference"}
    assert len(made) == (2 * 2 + 1) * 2  # both batches of the study are replaced by the two options


def test_quoted_comma_is_no_axis() -> None:
    (cell,) = with_options([Cell(("workload=ncf",))], ['devices="0,1"'])
    assert cell.options == ("workload=ncf", 'devices="0,1"')


@pytest.mark.parametrize("option", ["workload=ncf", "phase=train", "batch=[1"])
def test_matrix_refuses_invalid_options_and_its_flags(option: str) -> None:
    with pytest.raises(BadConfiguration):
        with_options(pair_cells(), [option])


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
