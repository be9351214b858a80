"""A fault of the checker on one result is never an acceptance, and other results keep their verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.cli import main
from suite.sandbox import sandbox
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.registered import ORG, Registrar, result

# A child whose rule SEED-001 raises an error on one run.
FAILS = "0badf417"
BROKEN = f"""
import sys
sys.path.insert(0, sys.argv[1])
import suite.checker.dataset
from suite.checker.context import RULE_FUNCTIONS, RuleFunction
from suite.sandbox.child import main
known = RULE_FUNCTIONS["SEED-001"].check
fails = lambda c: [1 // 0] if c.record.run_id.endswith("{FAILS}") else known(c)
RULE_FUNCTIONS["SEED-001"] = RuleFunction("SEED-001", "content", False, None, fails)
sys.exit(main())
"""
INTERNAL_ERROR = "internal error of the suite: ZeroDivisionError"


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the sandbox's children the fault."""
    monkeypatch.setattr(sandbox, "_START", BROKEN)


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Path]:
    """Two accepted results, and one on which the checker fails, by name."""
    folder = tmp_path / "results"
    good = {"first": "00000001", "fails": FAILS, "last": "fffffff1"}
    return {name: write_good(folder, Good(run_hex=run)) for name, run in good.items()}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of three submissions, packaged by a checker without the fault."""
    registrar = Registrar(tmp_path / "submissions")
    for run in ("00000001", FAILS, "fffffff1"):
        assert registrar.submit(result(tmp_path / "submitted", Good(run_hex=run))) == 0
    return registrar.root


def test_check_reports_the_other_verdicts_despite_a_fault(
    faulty: None, results: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *map(str, results.values())]) == 2
    shown = capsys.readouterr()
    names = [results[name].name for name in ("first", "last")]
    assert [line.split()[:2] for line in shown.out.splitlines()] == [["accepted:", name] for name in names]
    assert shown.err.startswith(f"check: {results['fails']}: {INTERNAL_ERROR}")
    assert shown.err.count("\n") == 1


def test_check_exits_with_2_for_a_fault_and_a_rejection(
    faulty: None, results: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (results["last"] / "run.jsonl").write_bytes(b"{}")
    assert main(["check", *map(str, results.values())]) == 2
    assert f"rejected: {results['last'].name}" in capsys.readouterr().out


def test_check_json_has_an_entry_for_the_faulty_result(
    faulty: None, results: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--json", *map(str, results.values())]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [one["result"] for one in found] == [path.name for path in results.values()]
    assert [one["accepted"] for one in found] == [True, False, True]
    assert INTERNAL_ERROR in found[1]["error"]


def test_check_submissions_judges_the_others_despite_a_fault(
    faulty: None, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-submissions", str(tree)]) == 2
    (fault,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("no verdict: ")]
    assert FAILS in fault
    assert INTERNAL_ERROR in fault
    (bad,) = [path for path in tree.glob("*/*/*/*/*/run.jsonl") if path.parent.name.endswith("00000001")]
    bad.write_bytes(b"{}")
    assert main(["check-submissions", str(tree)]) == 2
    shown = capsys.readouterr().out
    assert "LOG-007 reject" in shown or "LOG-009 reject" in shown
    assert "3 submitted results" in shown
    assert "assurance: 1 at L1" in shown
    assert "because of a fault of the checker: 1" in shown


def test_summary_has_a_row_for_the_fault(
    faulty: None, results: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", "--format", "json", str(results["first"].parent)]) == 2
    shown = capsys.readouterr()
    rows = [row for table in json.loads(shown.out)["tables"] for row in table["results"]]
    states = {row["run_id"]: row["status"] for row in rows}
    assert states == {path.name: "error" if name == "fails" else "accepted" for name, path in results.items()}
    (row,) = [row for row in rows if row["status"] == "error"]
    assert row["why"].startswith(INTERNAL_ERROR)
    assert row["throughput_per_s"] is None
    assert f"summary: no verdict on {results['fails'].name}: {INTERNAL_ERROR}" in shown.err


def test_fault_outside_the_selection_counts_too(
    faulty: None, results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--division", "practice", "--format", "md", "--out", str(tmp_path / "out")]
    assert main(["summary", *arguments, str(results["first"].parent)]) == 2
    assert INTERNAL_ERROR in capsys.readouterr().err
    assert "error" not in (tmp_path / "out" / "summary.md").read_text()


@pytest.fixture
def others(tree: Path) -> Path:
    """The tree with the submission on which the checker fails moved to another submitter."""
    (fails,) = tree.glob(f"{ORG}/*/*/*/*{FAILS}")
    target = tree / "other-labs" / fails.relative_to(tree / ORG)
    target.parent.mkdir(parents=True)
    fails.rename(target)
    return tree


def test_audit_of_another_result_names_the_faulty_submission(
    faulty: None, others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = sorted(others.glob(f"{ORG}/*/*/*/*"))
    options = ["--submissions", str(others), "--out", str(tmp_path / "out")]
    assert main(["audit", "--result", str(first), *options]) == 0
    shown = capsys.readouterr()
    assert "assurance level: L1" in shown.out
    assert shown.err.startswith("not compared with a submission that has no verdict: other-labs/")
    (fault,) = json.loads((tmp_path / "out" / "verdict.json").read_text())["not_compared"]
    assert FAILS in fault
    assert INTERNAL_ERROR in fault


def test_audit_still_finds_copies_of_the_submissions_with_a_verdict(
    faulty: None, others: Path, results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--submissions", str(others), "--out", str(tmp_path / "out")]
    assert main(["audit", "--result", str(results["first"]), *options]) == 1
    assert "reject: REG-007" in capsys.readouterr().out


def test_audit_of_the_faulty_submission_itself_has_no_verdict(
    faulty: None, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fails,) = tree.glob(f"*/*/*/*/*{FAILS}")
    options = ["--submissions", str(tree), "--out", str(tmp_path / "out")]
    assert main(["audit", "--result", str(fails), *options]) == 2
    assert INTERNAL_ERROR in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_coverage_names_a_faulty_submission_of_the_submitter_alone(
    faulty: None, others: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def coverage(submitter: str) -> tuple[int, str, str]:
        code = main(["coverage", "--submitter", submitter, "--submissions", str(others)])
        return code, *capsys.readouterr()

    code, table, printed = coverage(ORG)
    assert (code, printed) == (0, "")
    code, same, printed = coverage("other-labs")
    assert (code, same) == (2, table)
    assert printed.startswith("coverage: no verdict: other-labs/")
    assert FAILS in printed
    assert INTERNAL_ERROR in printed
