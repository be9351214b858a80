"""Packaging results, and checking the tree of submissions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.cli.keygen import default_path
from suite.submissions import package as submission
from suite.submissions.system import encode
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import Good, reference, write_good
from tests.fixtures.registered import with_facts
from tests.fixtures.report_records import GPU
from tests.unit.test_submit_system import OF_ACCELERATOR, STATED

ORG = "example-labs"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result that the checker accepts, with facts as of a real machine; read only."""
    return rewrite(write_good(tmp_path_factory.mktemp("results")), with_facts)


@pytest.fixture
def statement(tmp_path: Path, good: Path) -> Path:
    """The facts that a person states about the machine of the good log."""
    file = tmp_path / "system.json"
    file.write_text(json.dumps(STATED))
    return file


def submit(result: Path, system: Path | None, root: Path, submitter: str = ORG) -> int:
    """`python -m suite submit --yes`; returns its exit code."""
    arguments = ["--result", str(result), f"--submitter={submitter}", "--submissions", str(root), "--yes"]
    return main(["submit", *arguments, *(["--system", str(system)] if system else [])])


@pytest.fixture
def tree(good: Path, statement: Path, tmp_path: Path) -> Path:
    """A root with one submission in it."""
    root = tmp_path / "submissions"
    assert submit(good, statement, root) == 0
    return root


def the_run(root: Path) -> Path:
    (log,) = root.glob("*/*/*/*/*/run.jsonl")
    return log.parent


def rules_of(root: Path) -> set[str]:
    entries, stray = submission.check_tree(root)
    return {found.rule for entry in entries for found in entry.findings} | {found.rule for found in stray}


def test_submit_copies_and_describes_result(good: Path, tree: Path) -> None:
    run = the_run(tree)
    assert run == tree / ORG / "practice" / "example-box-1" / "ncf" / good.name
    assert sorted(path.name for path in run.iterdir()) == ["run.jsonl", "system.json"]
    assert (run / "run.jsonl").read_bytes() == (good / "run.jsonl").read_bytes()
    assert rules_of(tree) == set()
    assert main(["check-submissions", str(tree)]) == 0
    assert not list(tree.glob(".incoming*"))


def test_open_result_on_an_accelerator_is_written_to_results(tmp_path: Path) -> None:
    def on_h200(events: Events) -> None:
        with_facts(events)
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                event["data"]["facts"]["accelerators"] = {"driver": "580.95", "devices": [GPU]}

    result = rewrite(write_good(tmp_path, reference()), on_h200)
    file = tmp_path / "system.json"
    file.write_text(json.dumps(STATED | OF_ACCELERATOR))
    assert submit(result, file, tmp_path / "root") == 0
    run = the_run(tmp_path / "root")
    assert run.relative_to(tmp_path / "root").parts[:4] == (ORG, "results", "example-box-1", "ncf")
    described = json.loads((run / "system.json").read_text())
    assert described["accelerator_power_limit"] == 700_000
    assert described["division"] == "open"
    assert rules_of(tmp_path / "root") == {"ID-016", "REG-015"}  # neither a release nor a reference yet


def test_submit_never_overwrites(
    good: Path, statement: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (the_run(tree) / "system.json").read_bytes()
    assert submit(good, statement, tree) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert (the_run(tree) / "system.json").read_bytes() == before


def test_rejected_result_is_refused(
    good: Path, statement: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / good.name
    shutil.copytree(good, bad)
    log = bad / "run.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    assert submit(bad, statement, tmp_path / "root") == 1
    assert "LOG-" in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


def test_out_of_memory_run_is_refused(
    statement: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = write_good(tmp_path, Good(out_of_memory_in=1))
    assert submit(result, statement, tmp_path / "root") == 2
    assert "out of memory" in capsys.readouterr().err


def test_missing_facts_are_listed_by_name_with_the_lines_to_fill_in(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(good, None, tmp_path / "root") == 2
    text = capsys.readouterr().err
    assert all(f"{name} = " in text for name in STATED)
    assert "--system system.toml" in text
    assert not (tmp_path / "root").exists()


def test_system_file_is_written_once_and_submits_when_it_is_filled_in(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, root = tmp_path / "system.toml", tmp_path / "submissions"
    assert main(["system", "--result", str(good), "--out", str(file)]) == 0
    assert f"SYSTEM={file} KEY={default_path()}" in capsys.readouterr().out
    empty = file.read_text()
    names = [line.split(" = ")[0] for line in empty.splitlines() if " = " in line]
    assert submit(good, file, root) == 2
    unfilled = f"expected a value for every name, found none yet for {', '.join(sorted(names))}"
    assert unfilled in capsys.readouterr().err
    assert not root.exists()
    file.write_text("".join(f"{name} = {json.dumps(STATED[name])}\n" for name in names))
    assert main(["system", "--result", str(good), "--out", str(file)]) == 2  # it would destroy the answers
    assert "exists and is not overwritten" in capsys.readouterr().err
    assert submit(good, file, root) == 0
    assert rules_of(root) == set()


@pytest.mark.parametrize("name", ["Example Labs", "../up", "registry", "", "a--b", "-a", "a/b"])
def test_submitters_are_slugs(good: Path, statement: Path, tmp_path: Path, name: str) -> None:
    assert submit(good, statement, tmp_path / "root", name) == 2
    assert not (tmp_path / "root").exists()


def test_read_only_folder_is_a_usage_error(
    good: Path, statement: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert submit(good, statement, blocked / "root") == 2
    assert "cannot write" in capsys.readouterr().err


def edited(root: Path, **changes: Any) -> None:
    run = the_run(root)
    value = json.loads((run / "system.json").read_text())
    value.update(changes)
    (run / "system.json").write_bytes(encode(value))


def moved(root: Path, *parts: str) -> None:
    run = the_run(root)
    target = root.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    run.rename(target)
    for folder in (run.parent, run.parent.parent, run.parent.parent.parent, run.parent.parent.parent.parent):
        if not any(folder.iterdir()):
            folder.rmdir()


def twin(root: Path) -> Path:
    """A second submission of the same log, for another system."""
    run = the_run(root)
    org, division, _, *rest = run.relative_to(root).parts
    other = root / Path(org, division, "another-box", *rest)
    shutil.copytree(run, other)
    value = json.loads((other / "system.json").read_text())
    (other / "system.json").write_bytes(encode({**value, "system_name": "Another Box"}))
    return other


DEFECTS: list[tuple[str, Callable[[Path], Any]]] = [
    ("SUBM-001", lambda root: (root / "notes.txt").write_text("")),
    ("SUBM-001", lambda root: (root / "link").symlink_to(root / ORG)),
    ("SUBM-001", lambda root: (root / ORG / "code").mkdir()),
    ("SUBM-001", lambda root: (the_run(root).parent / "result.txt").write_text("")),
    ("SUBM-002", lambda root: (root / "Example Labs").mkdir()),
    ("SUBM-003", lambda root: (the_run(root) / "system.json").unlink()),
    ("SUBM-003", lambda root: (the_run(root) / "system.json").write_text('{"a": 1, "a": 1}')),
    ("SUBM-004", lambda root: edited(root, status="onprem")),
    ("SUBM-004", lambda root: edited(root, cooling="")),
    ("SUBM-004", lambda root: edited(root, host_storage_capacity=3840)),
    ("SUBM-005", lambda root: edited(root, host_memory_capacity=1)),
    ("SUBM-005", lambda root: edited(root, framework="pytorch 99")),
    ("SUBM-005", lambda root: edited(root, division="open")),
    ("SUBM-006", lambda root: edited(root, submitter="other-labs")),
    ("SUBM-006", lambda root: edited(root, system_name="Another Box")),
    ("SUBM-006", lambda root: moved(root, ORG, "practice", "example-box-1", "gnmt", the_run(root).name)),
    ("SUBM-006", lambda root: moved(root, ORG, "results", "example-box-1", "ncf", the_run(root).name)),
    ("SUBM-007", twin),
    ("SUBM-009", lambda root: (the_run(root) / "baseline.json").write_text("{}")),
    ("LOG-002", lambda root: (the_run(root) / "extra.bin").write_text("")),
]


@pytest.mark.parametrize(("rule", "forge"), DEFECTS)
def test_each_defect_of_the_tree_has_its_rule(tree: Path, rule: str, forge: Callable[[Path], Any]) -> None:
    forge(tree)
    assert rule in rules_of(tree)
    assert main(["check-submissions", str(tree)]) == 1


def test_implausible_statement_is_refused_before_anything_is_written(
    good: Path, statement: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statement.write_text(json.dumps(STATED | {"host_storage_capacity": 3840, "cooling": "TODO"}))
    assert submit(good, statement, tmp_path / "submissions") == 2
    both = capsys.readouterr()
    about = "capacity of that storage on one node in bytes"
    assert both.err.splitlines() == [
        f"submit: host_storage_capacity: expected at least 100000000 ({about}), found 3840",
        "cooling: expected cooling, such as 'air' or 'direct liquid', found 'TODO'",
        f"state this in {statement}",
    ]
    assert both.out == ""
    assert not (tmp_path / "submissions").exists()


def test_findings_are_under_their_folder_in_lines_that_fit_the_terminal(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(tree, cooling="x" * 10_000)
    edited(tree, host_storage_type="")
    capsys.readouterr()
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["check-submissions", str(tree)]) == 1
        folder, *lines = capsys.readouterr().out.splitlines()
        assert folder == f"{the_run(tree).relative_to(tree)}:"
        assert sum(line.startswith("  SUBM-004 reject system.json, ") for line in lines) >= 2
        assert max(map(len, lines)) <= width


def test_every_rule_has_a_forged_tree() -> None:
    of_the_tree = {rule for rule in submission.rules() if rule.startswith("SUBM-")}
    assert {rule for rule, _ in DEFECTS} >= of_the_tree - {"SUBM-008"}


def test_system_with_two_descriptions_is_flagged_at_the_later_result(tree: Path) -> None:
    entries, _ = submission.check_tree(tree)
    later = entries[0].folder.parents[1] / "an_earlier_name" / "29991231T2359Z-later"
    other = submission.CheckedSubmission(
        later,
        (),
        "1" * 64,
        "other",
        {**(entries[0].system or {}), "cooling": "liquid"},
    )
    (found,) = submission.hardware_differences([other, *entries], tree)
    assert (found.rule, found.severity) == ("SUBM-008", "flag")
    assert found.location.startswith(f"{later.relative_to(tree)}, ")


def test_readme_and_registry_are_allowed_in_tree(tree: Path) -> None:
    (tree / "README.md").write_text("")
    shutil.copytree(Path(__file__).parents[2] / "submissions" / "registry", tree / "registry")
    assert rules_of(tree) == set()
    (tree / "registry" / "keys.json").write_text("{}")
    assert rules_of(tree) == {"REG-001"}


def test_missing_root_is_a_usage_error(tmp_path: Path) -> None:
    assert main(["check-submissions", str(tmp_path / "absent")]) == 2


def test_summary_finds_results_and_submissions(
    good: Path, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["summary", str(good.parent), str(tree)]
    assert main([*arguments, "--format", "csv", "--out", str(tmp_path / "out")]) == 0
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == "summary.csv"
    lines = file.read_text().splitlines()
    assert len(lines) == 2  # the result and its submission are one run
    assert f",{ORG},Example Box 1," in lines[1]
    capsys.readouterr()
    assert main([*arguments, "--format", "json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert [len(table["results"]) for table in tables] == [1]
    assert main(["summary", str(tmp_path / "absent")]) == 2


def test_summary_without_a_path_shows_this_checkouts_results_and_counts_the_submissions(
    good: Path,
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The results come first and complete, however many submissions there are."""
    monkeypatch.chdir(tmp_path)
    command = "`make summary RESULT=submissions` shows them"
    not_shown = f"not shown: 1 submitted result in submissions/; {command}\n"
    capsys.readouterr()
    assert main(["summary"]) == 0
    printed = capsys.readouterr()
    assert (printed.err, printed.out) == ("summary: no results found\n", not_shown)
    later = write_good(tmp_path / "results", Good(run_hex="0a1b2c3e"))
    assert main(["summary"]) == 0
    out = capsys.readouterr().out
    assert "1 result\n" in out
    assert later.name[-8:] in out
    assert ORG not in out
    assert out.endswith(not_shown)
    assert main(["summary", "--format", "csv"]) == 0
    both = capsys.readouterr()
    assert len(both.out.splitlines()) == 2
    assert both.err == not_shown
    shutil.copytree(good, tmp_path / "results" / good.name)
    assert main(["summary", "--format", "csv"]) == 0
    both = capsys.readouterr()
    assert f",{ORG},Example Box 1," in both.out  # a submitted result is shown as submitted
    assert both.err == ""
