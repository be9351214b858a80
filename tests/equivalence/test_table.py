"""The equivalence table: rows from arrays on disk, resumed after an interruption, all published sizes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suite import workloads
from tests.equivalence import table
from tests.equivalence.case import FRAMEWORKS, Case, load, names
from tests.equivalence.compare import ROUNDING
from tests.equivalence.interpreters import ROOT, interpreter
from tests.equivalence.recorded import Stopped, Stored, code_digest, code_files, compared, compute
from tests.equivalence.recorder import INDEX
from tests.equivalence.table_text import line, page

Arrays = dict[str, NDArray[Any]]
NCF = load("ncf")


def arrays(case: Case = NCF) -> Arrays:
    """Arrays of a case in float64, with the right names and shapes."""
    spec = workloads.specification(case.workload)
    shapes = {p.name: p.shape for p in spec.parameters(spec.dimensions(case.scale, case.variant))}
    found = {f"{kind}/{name}": np.ones(shapes[name]) for kind in ("gradient", "update") for name in shapes}
    return found | {"outputs": np.ones(5), "losses": np.ones(10), "inference": np.ones((2, 5))}


def store(folder: Path, held: Arrays, **facts: Any) -> Stored:
    """Store ``held`` on disk as the recorder does."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = {name: f"{at}.npy" for at, name in enumerate(held)}
    for name, file in files.items():
        np.save(folder / file, held[name])
    count = sum(array.size for name, array in held.items() if name.startswith("update/"))
    known = {"arrays": files, "parameters": count, "version": "1.0", "seconds": 1.0, "peak_bytes": 1}
    (folder / INDEX).write_text(json.dumps(known | facts))
    return Stored(folder)


WITH_MXNET = [f"{one} and {other}" for one, other in combinations(FRAMEWORKS, 2) if "mxnet" in (one, other)]


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., dict[str, Stored]]:
    """A maker of all frameworks' arrays, those of MXNet changed and with the facts given."""

    def made(change: Arrays, **facts: Any) -> dict[str, Stored]:
        return {
            framework: store(
                tmp_path / framework,
                arrays() | (change if framework == "mxnet" else {}),
                **(facts if framework == "mxnet" else {}),
            )
            for framework in FRAMEWORKS
        }

    return made


def test_equal_arrays_give_row_without_difference(stored: Any) -> None:
    row = compared(NCF, "fp64", "code", stored({}))
    assert row.over == {}
    assert {kind: found.value for kind, found in row.largest.items()} == dict.fromkeys(
        ("outputs", "gradient", "update", "losses", "first loss", "inference"), 0.0
    )
    assert row.parameters == 80_481
    assert line(row).startswith("ok ncf f8 mini fp64 80,481: outputs 0.0e+00, gradient 0.0e+00 (")


def test_largest_difference_names_tensor_and_frameworks(stored: Any) -> None:
    moved = arrays()["update/mlp.1.bias"] + 1e-6
    row = compared(NCF, "fp64", "code", stored({"update/mlp.1.bias": moved}))
    found = row.largest["update"]
    assert (found.tensor, found.between) == ("mlp.1.bias", ("pytorch", "mxnet"))
    assert found.value == pytest.approx(1e-6, rel=1e-3)
    assert list(row.over) == [f"update/mlp.1.bias, {pair}" for pair in WITH_MXNET]
    assert line(row).startswith("FAILED ncf")


@pytest.mark.parametrize(("rounding", "outcome"), [(1e-12, "ok, magnified"), (1e-14, "FAILED")])
def test_fp32_bound_widens_with_rounding_in_float64(stored: Any, rounding: float, outcome: str) -> None:
    moved = arrays()["outputs"] * (1 + 2e-4)
    exact = compared(NCF, "fp64", "code", stored({"outputs": arrays()["outputs"] * (1 + rounding)}))
    row = compared(NCF, "fp32", "code", stored({"outputs": moved}), exact)
    assert line(row).startswith(f"{outcome} ncf")
    assert list({**row.magnified, **row.over}) == [f"outputs, {pair}" for pair in WITH_MXNET]
    assert compared(NCF, "fp32", "code", stored({"outputs": moved})).over  # without a row in float64


@pytest.mark.parametrize(("error", "outcome"), [(4e-5, "ok, magnified"), (8e-5, "FAILED")])
def test_first_loss_bound_widens_with_outputs(stored: Any, error: float, outcome: str) -> None:
    """Five times in both: its difference in float64 may be small by chance."""
    exact = compared(NCF, "fp64", "code", stored({"outputs": arrays()["outputs"] * (1 + 5e-4 / ROUNDING)}))
    assert exact.largest["first loss"].value == 0.0
    losses = arrays()["losses"]
    row = compared(NCF, "fp32", "code", stored({"losses": losses * (1 + error)}), exact)
    assert line(row).startswith(f"{outcome} ncf")
    assert compared(NCF, "fp32", "code", stored({"losses": losses * (1 + error)})).over


def test_non_finite_value_exceeds_every_bound(stored: Any) -> None:
    row = compared(NCF, "fp64", "code", stored({"losses": np.full(10, np.nan)}))
    assert row.largest["losses"].value == float("inf")
    assert row.over


def test_wrong_parameter_count_stops_comparison(stored: Any) -> None:
    runs = stored({}, parameters=80_482)
    with pytest.raises(Stopped, match=r"in mxnet: expected 80481 parameters, found 80482"):
        compared(NCF, "fp64", "code", runs)


def test_all_zero_outputs_stop_comparison(stored: Any) -> None:
    runs = stored({"inference": np.zeros((2, 5))})
    with pytest.raises(Stopped, match=r"in mxnet: expected numbers in inference, found zeros only"):
        compared(NCF, "fp64", "code", runs)


def test_row_survives_json_file(stored: Any, tmp_path: Path) -> None:
    row = compared(NCF, "fp64", "code", stored({"losses": np.full(10, 2.0)}))
    file = tmp_path / "rows.json"
    table.Rows(file).add(row)
    table.Rows(file).add(replace(row, precision="fp32"))
    assert table.Rows(file).find(NCF, "fp64") == row
    assert table.Rows(file).find(load("gnmt"), "fp64") is None


def test_recorded_arrays_are_not_computed_again(tmp_path: Path) -> None:
    folder = tmp_path / f"ncf-mini-f8-fp64-{code_digest('ncf')}"
    for framework in FRAMEWORKS:
        store(folder / framework, arrays(), version=f"of {framework}")
    row = compute(NCF, "fp64", tmp_path, threads=1)
    assert row.versions == {framework: f"of {framework}" for framework in FRAMEWORKS}
    assert not folder.exists()  # arrays of a large model are gigabytes


def test_all_frameworks_give_one_row(tmp_path: Path) -> None:
    for framework in FRAMEWORKS:
        interpreter(framework)  # skips the test without one
    row = compute(NCF, "fp32", tmp_path, threads=1)
    assert row.over == {}
    assert 0 < row.largest["outputs"].value < 1e-5
    assert row.versions["mxnet"] == "1.9.1"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", names())
def test_every_published_size_has_a_case(name: str) -> None:
    spec, case = workloads.specification(name), load(name)
    assert set(case.reference) == set(spec.VARIANTS["reference"])
    for one in case.at("reference"):
        job = one.job("pytorch", "fp64")
        assert (job.key.scale, job.key.variant) == ("reference", one.variant)
        assert job.hyper.get("dropout", "0") == "0"
        assert job.hyper.get("warmup_steps", "0") == "0"
        assert float(job.hyper.get("clip", "1")) > 0


def test_code_digest_covers_what_a_row_depends_on() -> None:
    found = {str(path.relative_to(ROOT)) for path in code_files("resnet50")}
    assert found >= {
        "suite/frameworks/mxnet/framework.py",
        "suite/frameworks/tensorflow/layers.py",
        "suite/workloads/_classification/pytorch.py",
        "suite/workloads/_classification/resnet.py",
        "suite/workloads/resnet50/spec.py",
        "tests/equivalence/cases/resnet50.py",
        "tests/equivalence/compare.py",
        "tests/equivalence/runner.py",
    }
    others = ("gnmt", "harness", "suite/metrics", "suite/checker", "suite/compare")
    assert not {path for path in found if any(other in path for other in others)}
    assert code_digest("resnet50") != code_digest("resnet152")


def test_page_lists_missing_rows(stored: Any) -> None:
    row = compared(NCF, "fp64", "0123456789ab", stored({}))
    text = page(
        {"mini": [NCF], "reference": NCF.at("reference")}, lambda case, _: row if case == NCF else None
    )
    wide = [one for one in text.splitlines() if one.startswith("| ncf")]
    assert len(wide) == 2 * (1 + 2)
    assert sum("not run yet" in one for one in wide) == 2 * 2
    assert sum("| ok | `0123456789ab` |" in one for one in wide) == 2
    assert f"Measured with {', '.join(f'{framework} 1.0' for framework in FRAMEWORKS)}." in text
    bare = page({"mini": [NCF], "reference": NCF.at("reference")}, lambda case, _: None)
    assert sum(one.startswith("| ncf") for one in bare.splitlines()) == 2 * 2  # make test does the mini scale


def test_table_of_gpus_is_that_of_its_rows_and_within_the_bounds() -> None:
    rows = json.loads((ROOT / "docs" / "equivalence-gpu.json").read_text())
    _, _, table_of_gpus = (ROOT / "docs" / "equivalence.md").read_text().partition("## On a GPU")
    assert page({"mini": [], "reference": []}, lambda case, _: None, rows).endswith(table_of_gpus)
    measured = [row for row in rows if "refused" not in row]
    assert {row["framework"] for row in measured} == {"pytorch", "tensorflow", "jax"}
    above = [row for row in measured if row["precision"] == "fp64" and not row["largest"] <= 1e-8]
    above += [row for row in measured if not row["losses"] <= 2e-2]
    assert [row for row in above if "note" not in row] == []  # none without what explains it
    assert table_of_gpus.count("**") == 2 * len(above)
    assert "WrongCode" not in table_of_gpus
    refused = {"workload": "ncf", "framework": "pytorch", "version": "2", "device": "GPU"}
    refused |= {"precision": "fp64", "refused": "WrongCode"}
    text = page({"mini": [], "reference": []}, lambda case, _: None, [refused])
    assert "| ncf | WrongCode |" in text
    assert "`WrongCode`: the suite refuses" in text
    assert "| ncf |" not in page({"mini": [], "reference": []}, lambda case, _: None)


def test_unknown_workload_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert table.main(["--workload", "nfc", "--cache-dir", str(tmp_path)]) == table.USAGE
    assert "found nfc" in capsys.readouterr().out
