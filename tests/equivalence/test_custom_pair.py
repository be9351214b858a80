"""Custom pairs are tested as the suite's pairs are: a good one passes, others fail with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equivalence import custom_pair
from tests.equivalence.case import FRAMEWORKS, names
from tests.equivalence.interpreters import interpreter

PAIRS = Path(__file__).parents[1] / "fixtures" / "pairs"


@pytest.fixture(scope="module", autouse=True)
def _an_environment() -> None:
    interpreter("pytorch")


def test_good_custom_pair_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code = custom_pair.main(["ncf", "pytorch", str(PAIRS / "good.py")])
    output = capsys.readouterr().out
    assert code == 0, output
    assert "passed check_reset_starts_again" in output
    assert "ncf fp64, against pytorch: largest difference" in output


def test_pair_with_another_computation_passes_contract_and_fails_comparison() -> None:
    found = custom_pair.problems("ncf", "pytorch", PAIRS / "wrong.py")
    assert found
    assert all(problem.startswith(("ncf fp64, against", "ncf fp32, against")) for problem in found), found
    assert any("update/" in problem for problem in found)


def test_file_without_pair_fails_every_check() -> None:
    *checks, last = custom_pair.problems("ncf", "pytorch", PAIRS / "empty.py")
    assert "ncf: check_collect_is_in_order" in checks
    assert "expected a class named Pair" in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gmnt", "pytorch", "x.py"], f"expected one of {', '.join(names())}, found 'gmnt'"),
        (["ncf", "caffe", "x.py"], f"framework: expected one of {', '.join(FRAMEWORKS)}, found 'caffe'"),
        (["ncf", "pytorch", "missing.py"], "pair: expected a Python file, found none at"),
        (["ncf"], "expected WORKLOAD FRAMEWORK FILE"),
    ],
)
def test_untestable_arguments_are_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert custom_pair.main(arguments) == 2
    assert message in capsys.readouterr().err
