"""What a matrix consists of: every pair, an experiment's grid, filters, axes given in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite import workloads
from suite.cli import main
from suite.cli.overrides import check_overrides
from suite.plan.errors import BadConfiguration
from suite.plan.options import by_name
from suite.sweep.cells import EXPERIMENTS, Cell, chosen, every_pair, read_experiment, to_target, with_words

NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
WORKLOADS = {  # all that the studies may name, those that are still to come included
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


def written(tmp_path: Path, text: str, name: str = "study") -> str:
    (tmp_path / f"{name}.yaml").write_text(text)
    return str(tmp_path / f"{name}.yaml")


def test_by_default_there_is_a_cell_for_each_pair_and_phase() -> None:
    cells = every_pair()
    assert Cell(("workload=ncf", "framework=mxnet", "phase=infer")) in cells
    assert len(cells) == 2 * sum(len(workloads.frameworks(name)) for name in workloads.names())
    assert len(set(cells)) == len(cells)


def test_an_experiment_is_the_product_of_each_of_its_entries(tmp_path: Path) -> None:
    study = read_experiment(written(tmp_path, GRID))
    assert (study.name, study.study, study.sources) == ("study", "A study", ("https://example.org/study",))
    assert len(study.cells) == 2 * 2 * 2 + 1
    words = ("workload=gnmt", "framework=mxnet", "phase=train", "scale=mini", "telemetry=false", "batch=2")
    assert Cell(words) in study.cells


def test_an_entry_without_framework_and_phase_takes_all(tmp_path: Path) -> None:
    text = "matrix: {study: a, source: b, cells: [{workload: ncf}]}"
    cells = read_experiment(written(tmp_path, text)).cells
    assert {(cell.value("framework"), cell.value("phase")) for cell in cells} == {
        (framework, phase) for framework in ("mxnet", "pytorch", "tensorflow") for phase in ("train", "infer")
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_published_study_states_what_a_table_needs(name: str) -> None:
    study = read_experiment(name)
    assert study.note
    assert all(source.startswith("http") for source in study.sources)
    for cell in study.cells:
        assert cell.value("workload") in WORKLOADS
        assert cell.value("phase") in by_name()["phase"].choices()
        assert cell.value("precision") in by_name()["precision"].choices()
        assert cell.value("scale") == "reference"
        assert cell.value("data") in ("real", "synthetic")
        check_overrides(["workload=ncf", *(word for word in cell.words if not word.startswith("workload="))])


def test_there_are_the_five_studies() -> None:
    assert NAMES == ["gpu_cloud_2018", "mxnet_hardware", "p100_scaling", "tensorflow_2017", "titan_rtx_2019"]


@pytest.mark.parametrize("name", NAMES)
def test_a_grid_is_no_experiment_of_a_single_run(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "workload=ncf", "framework=pytorch", f"+experiment={name}"]) == BadConfiguration.code
    assert f"make matrix EXPERIMENT={name}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# @package _global_\nprecision: bf16\n", r"suite run \+experiment=study"),
        ("matrix: {study: a, source: b, cells: [], batch: 3}", "expected study, source and cells"),
        ("matrix: {study: a, cells: []}", "expected study, source and cells"),
        ("matrix: {study: a, source: b, cells: [{phase: train}]}", r"cells\[0\]: expected a workload"),
        ("matrix: [1,\n", "expected YAML"),
    ],
)
def test_a_file_that_is_no_grid_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadConfiguration, match=says):
        read_experiment(written(tmp_path, text))


def test_an_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(BadConfiguration, match="did you mean titan_rtx_2019"):
        read_experiment("titan_rtx")


def test_words_replace_a_cells_own_and_commas_make_an_axis(tmp_path: Path) -> None:
    cells = read_experiment(written(tmp_path, GRID)).cells
    made = with_words(cells, ["batch=16,32", "scale=reference"])
    assert {cell.value("batch") for cell in made} == {"16", "32"}
    assert {cell.value("scale") for cell in made} == {"reference"}
    assert len(made) == (2 * 2 + 1) * 2  # two batches of the study have become the same two of the words


def test_a_quoted_comma_is_no_axis() -> None:
    (cell,) = with_words([Cell(("workload=ncf",))], ['devices="0,1"'])
    assert cell.words == ("workload=ncf", 'devices="0,1"')


@pytest.mark.parametrize("word", ["workload=ncf", "phase=train", "batch=[1"])
def test_words_that_a_matrix_cannot_take_are_refused(word: str) -> None:
    with pytest.raises(BadConfiguration):
        with_words(every_pair(), [word])


def test_filters_keep_what_they_name_and_refuse_what_no_cell_has() -> None:
    kept = chosen(every_pair(), workload=["ncf"], framework=["mxnet", "pytorch"], phase=[])
    assert {(cell.value("workload"), cell.value("framework")) for cell in kept} == {
        ("ncf", "mxnet"),
        ("ncf", "pytorch"),
    }
    with pytest.raises(BadConfiguration, match="did you mean pytorch"):
        chosen(every_pair(), framework=["pytroch"])


def test_three_seeds_in_pytorch_one_in_the_others() -> None:
    cells = to_target()
    of = {
        name: [cell for cell in cells if cell.value("framework") == name and cell.value("workload") == "ncf"]
        for name in ("pytorch", "tensorflow", "mxnet")
    }
    assert [len(found) for found in of.values()] == [3, 1, 1]
    assert len({cell.value("nonce") for cell in of["pytorch"]}) == 3
    assert all(cell.value("mode") == "quality" for cell in cells)
    assert len(to_target(2)) == 2 * len({(c.value("workload"), c.value("framework")) for c in cells})
    assert max(len(cell.title) for cell in cells) < 90
    with pytest.raises(BadConfiguration, match="at least 1"):
        to_target(0)
