"""Withdrawn results: the registry's file, `make withdraw`, and what every command makes of them."""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import suite
from suite.cli import main
from suite.compare.loaded import NotAccepted
from suite.log.canonical import sha256_hex
from suite.site.build import build
from suite.submissions import package as submission
from suite.submissions.registry import read_registry
from tests.fixtures.good_log import Good
from tests.fixtures.registered import ORG, Registrar, moment, result
from tests.site.pages import read

REASON = "The cache was warm, not cold <b>"


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Registrar, Path, Path]:
    """A tree with two submissions."""
    folder = tmp_path_factory.mktemp("withdrawn")
    tree = Registrar(folder / "submissions")
    for name in ("00000001", "00000002"):
        assert tree.submit(result(folder / "results", Good(run_hex=name))) == 0
    first, second = tree.runs()
    return tree, first, second


@pytest.fixture
def tree(submitted: tuple[Registrar, Path, Path]) -> Iterator[Registrar]:
    """The tree, in which nothing is withdrawn before and after the test."""
    yield submitted[0]
    (submitted[0].folder / "withdrawals.json").unlink(missing_ok=True)


@pytest.fixture
def first(submitted: tuple[Registrar, Path, Path]) -> Path:
    """The submission that is withdrawn."""
    return submitted[1]


@pytest.fixture
def second(submitted: tuple[Registrar, Path, Path]) -> Path:
    """The submission that stays."""
    return submitted[2]


def withdrawal(run: Path, **changes: Any) -> dict[str, Any]:
    """An entry of withdrawals.json."""
    entry = {"sha256": sha256_hex((run / "run.jsonl").read_bytes()), "run_id": run.name, "submitter": ORG}
    return {**entry, "withdrawn_at": moment(1), "reason": REASON, **changes}


def withdraw(tree: Registrar, run: Path, reason: str = REASON) -> int:
    """``make withdraw``; returns its exit code."""
    return main(["withdraw", "--result", str(run), "--reason", reason, "--submissions", str(tree.root)])


def test_withdraw_adds_an_entry_once(
    tree: Registrar, first: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert withdraw(tree, first, f" {REASON} ") == 0
    assert "pull request" in capsys.readouterr().out
    (entry,) = json.loads((tree.folder / "withdrawals.json").read_bytes())["withdrawals"]
    assert entry == withdrawal(first, withdrawn_at=entry["withdrawn_at"])
    before = (tree.folder / "withdrawals.json").read_bytes()
    assert withdraw(tree, first / "run.jsonl", "again") == 0
    assert "has this already: withdrawn" in capsys.readouterr().out
    assert (tree.folder / "withdrawals.json").read_bytes() == before
    assert withdraw(tree, second) == 0
    assert len(read_registry(tree.folder).withdrawals) == 2
    assert not list(tree.folder.glob(".*"))


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "a bell \a", "grün", "x" * 501])
def test_withdraw_refuses_a_reason_that_is_no_line(
    tree: Registrar, first: Path, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert withdraw(tree, first, reason) == 2
    assert "--reason: expected" in capsys.readouterr().err
    assert not (tree.folder / "withdrawals.json").exists()


def test_withdraw_needs_a_submission_and_a_registry_without_faults(
    tree: Registrar, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert withdraw(tree, shutil.copytree(first, tmp_path / first.name)) == 2
    assert "expected the folder of a submission" in capsys.readouterr().err
    tree.put("withdrawals", {"format": "suite-registry-withdrawals/2", "withdrawals": []})
    assert withdraw(tree, first) == 2
    assert "withdrawals.json" in capsys.readouterr().err


def test_a_withdrawn_submission_has_no_level_and_is_counted(
    tree: Registrar, first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tree.state() == ({}, ["L1", "L1"])
    tree.rows("withdrawals", withdrawal(first))
    assert tree.state() == ({}, [None, "L1"])
    assert main(["check-submissions", str(tree.root)]) == 0
    printed = capsys.readouterr().out
    assert f"{first.name}: withdrawn {moment(1)} by {ORG}: {REASON}\n" in printed
    assert "0 flags, 1 withdrawn\nassurance: 1 at L1\n" in printed


def test_check_says_that_a_result_is_withdrawn(
    tree: Registrar, first: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.rows("withdrawals", withdrawal(first))
    assert main(["check", str(first), str(second)]) == 0
    printed = capsys.readouterr().out
    assert f"{first.name}: withdrawn {moment(1)} by {ORG}: {REASON}\n" in printed
    assert printed.count("withdrawn") == 1
    assert (
        printed.count("this checks the log alone: `make check-submissions` applies SUBM and REG rules too\n")
        == 2
    )
    assert main(["check", "--json", str(first), str(second)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [one["withdrawal"] for one in values] == [f"withdrawn {moment(1)} by {ORG}: {REASON}", None]


def test_rules_about_several_submissions_see_a_withdrawn_one(tree: Registrar, first: Path) -> None:
    tree.rows("withdrawals", withdrawal(first))
    twin = tree.root / "other-labs" / first.relative_to(tree.root / ORG)
    shutil.copytree(first, twin)
    try:
        _, about = submission.check_tree(tree.root)
    finally:
        shutil.rmtree(tree.root / "other-labs")
    assert {"REG-007", "SUBM-007"} <= {one.rule for one in about}


ROW = {"sha256": "0" * 64, "run_id": Good().run_id, "submitter": ORG, "withdrawn_at": moment(), "reason": "x"}
FILE = {"format": "suite-registry-withdrawals/1", "withdrawals": [ROW]}
FAULTS: dict[str, str] = {
    "not JSON": "{",
    "a name twice": json.dumps(FILE).replace('"reason"', '"run_id": "", "reason"'),
    "another format": json.dumps({**FILE, "format": "suite-registry-withdrawals/2"}),
    "another field": json.dumps({**FILE, "more": 1}),
    "no list": json.dumps({"format": "suite-registry-withdrawals/1"}),
    "a log twice": json.dumps({**FILE, "withdrawals": [ROW, {**ROW, "reason": "y"}]}),
    **{
        f"{name} {value!r}": json.dumps({**FILE, "withdrawals": [{**ROW, name: value}]})
        for name, value in (
            ("more", "x"),
            ("sha256", "0" * 63),
            ("sha256", "A" * 64),
            ("run_id", "../../x"),
            ("submitter", "Example Labs"),
            ("withdrawn_at", "2026-02-30T00:00:00Z"),
            ("withdrawn_at", "2026-11-24T00:00:00.5Z"),
            ("withdrawn_at", "2026-11-24T00:00:00+01:00"),
            ("reason", ""),
            ("reason", " "),
            ("reason", "two\nlines"),
            ("reason", "line\n"),
            ("reason", "\x1b[31m"),
            ("reason", "\u202e"),
            ("reason", "x" * 501),
            ("reason", None),
        )
    },
    **{
        f"without {name}": json.dumps(
            {**FILE, "withdrawals": [{key: value for key, value in ROW.items() if key != name}]}
        )
        for name in ROW
    },
}


@pytest.mark.parametrize("content", FAULTS.values(), ids=FAULTS)
def test_a_malformed_file_is_a_fault(tmp_path: Path, content: str) -> None:
    tree = Registrar(tmp_path / "submissions")
    assert read_registry(tree.folder).faults == ()
    tree.put("withdrawals", FILE)
    assert list(read_registry(tree.folder).withdrawals) == ["0" * 64]
    (tree.folder / "withdrawals.json").write_text(content)
    registry = read_registry(tree.folder)
    assert registry.withdrawals == {}
    (fault,) = registry.faults
    assert fault.rule == "REG-001"
    assert fault.location.startswith("registry, withdrawals.json")


def test_a_link_is_a_fault(tmp_path: Path) -> None:
    tree = Registrar(tmp_path / "submissions")
    (tmp_path / "elsewhere.json").write_text(json.dumps(FILE))
    (tree.folder / "withdrawals.json").symlink_to(tmp_path / "elsewhere.json")
    assert [fault.rule for fault in read_registry(tree.folder).faults] == ["REG-001"]


def test_an_entry_that_names_no_result_of_its_submitter_is_a_fault(tree: Registrar, first: Path) -> None:
    for changes in ({"sha256": "0" * 64}, {"submitter": "other-labs"}, {"run_id": Good().run_id}):
        tree.rows("withdrawals", withdrawal(first, **changes))
        _, about = submission.check_tree(tree.root)
        (fault,) = about
        assert (fault.rule, fault.severity) == ("REG-001", "reject")
        assert fault.location == "registry, withdrawals.json, withdrawals.0"


def test_a_withdrawn_result_is_not_quoted_anywhere(
    tree: Registrar, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_tree = ["--submissions", str(tree.root)]
    alone = shutil.copytree(first, tmp_path / first.name)  # somebody's copy
    (alone / "attestation.dsse.json").unlink()
    (alone / "system.json").unlink()
    assert main(["quote", "--result", str(alone), *of_tree]) == 0
    sentence = capsys.readouterr().out.strip()
    tree.rows("withdrawals", withdrawal(first))
    for path in (first, alone):
        assert main(["quote", "--result", str(path), *of_tree]) == 1
        assert f"quote: the result is withdrawn {moment(1)} by {ORG}: {REASON}" in capsys.readouterr().err
    assert main(["verify-quote", sentence, "--in", str(alone), *of_tree]) == 1
    assert "differs: there is no sentence of this result: the result is withdrawn" in capsys.readouterr().out
    audit = ["audit", "--result", str(first), *of_tree, "--out", str(tmp_path / "audit")]
    assert main([*audit, "--key", str(tree.key_file)]) == 1
    printed = capsys.readouterr().out
    assert "accepted, withdrawn by its submitter" in printed
    assert "assurance level" not in printed
    assert "not signed: its submitter withdrew the result" in printed
    (tree.folder / "withdrawals.json").write_text("{")
    assert main(["quote", "--result", str(first), *of_tree]) == 1
    assert "whether the result is withdrawn is unknown" in capsys.readouterr().err


def test_a_withdrawn_result_is_compared_with_nothing(
    tree: Registrar, first: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(first), str(second)]) == 0
    tree.rows("withdrawals", withdrawal(first))
    capsys.readouterr()
    assert main(["compare", str(first), str(second)]) == 1
    assert f"A is withdrawn, and not compared: withdrawn {moment(1)}" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="withdrawn .*; it has no metrics"):
        loaded = suite.load(first)
    assert (loaded.accepted, loaded.metrics) == (False, {})
    with pytest.raises(NotAccepted, match="is withdrawn"):
        suite.compare(loaded, second)
    assert main(["export", str(first)]) == 1
    assert "the result is withdrawn" in capsys.readouterr().err


def test_a_withdrawn_result_has_no_score_in_tables(
    tree: Registrar, first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.rows("withdrawals", withdrawal(first))
    assert main(["summary", "--format", "json", str(tree.root)]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    rows = {row["run_id"]: row for row in table["results"]}
    assert rows[first.name]["status"] == "withdrawn"
    assert rows[first.name]["why"] == f"{moment(1)[:10]}: {REASON}"
    assert rows[first.name]["throughput_per_s"] is None
    assert sum(row["throughput_per_s"] is not None for row in rows.values()) == 1
    assert main(["plot", "--results-dir", str(first), "--out", str(tree.root.parent / "plot.svg")]) == 2
    assert "expected at least one accepted result, found none" in capsys.readouterr().err


def test_the_site_strikes_a_withdrawn_result_through_and_checks_no_other_again(
    tree: Registrar, first: Path, second: Path, tmp_path: Path
) -> None:
    folders = (tree.root, tmp_path / "site", tmp_path / "cache")
    before = {one.digest: one.key for one in build(*folders).collection.results}
    tree.rows("withdrawals", withdrawal(first))
    after = {one.digest: one.key for one in build(*folders).collection.results}
    gone, stays = (sha256_hex((run / "run.jsonl").read_bytes()) for run in (first, second))
    assert before[gone] != after[gone]
    assert before[stays] == after[stays]
    build(tree.root, tmp_path / "fresh", tmp_path / "another cache")
    files = [path.relative_to(tmp_path / "fresh") for path in (tmp_path / "fresh").rglob("*.*")]
    assert filecmp.cmpfiles(tmp_path / "fresh", tmp_path / "site", files, shallow=False)[1:] == ([], [])
    index = read(tmp_path / "site" / "index.html")
    rows = [named for name, named in index.elements if name == "tr" and named.get("class") == "gone"]
    assert [row["data-digest"] for row in rows] == [gone]
    assert "withdrawn" in index.text
    assert "1 accepted result with a score from 1 submitter; 1 withdrawn." in index.text
    page = read(tmp_path / "site" / "r" / f"{gone}.html")
    assert "score" not in page.metrics
    words = f"Withdrawn on {moment(1)[:10]} {moment(1)[11:19]} UTC by its submitter, {ORG}: {REASON}"
    assert words in "".join(page.text)
    compare = (tmp_path / "site" / "compare.html").read_text()
    assert stays in compare
    assert gone not in compare
    report = tmp_path / "report.html"
    arguments = ["report", "--result", str(first), "--submissions", str(tree.root), "--out", str(report)]
    assert main([*arguments, "--cache-dir", str(tmp_path / "cache")]) == 0
    assert words in "".join(read(report).text)
