"""Rules that ended take no new result (SUBM-009): what was submitted before stays, by its digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.audit.judgement import judged
from suite.audit.outcomes import KEPT, REJECTED
from suite.checker import check_result
from suite.cli import main
from suite.judge.parent import Judge
from suite.record.canonical import sha256_hex
from suite.registry import read_registry
from suite.report import submission
from suite.rules.places import ENDED, NEWEST, VERSIONS
from tests.fixtures.earlier import TREE, earlier, listed, twice_as_fast
from tests.fixtures.forging import Events, Forge, rewrite
from tests.fixtures.registered import Registrar

LIST = TREE / "registry" / "earlier.json"


@pytest.fixture
def tree(tmp_path: Path) -> Registrar:
    """A tree with a registry and no submission."""
    return Registrar(tmp_path / "submissions")


def rejections(tree: Registrar) -> set[str]:
    return {rule for rule, severity in tree.findings().items() if severity == "reject"}


def commit_of_another(events: Events) -> None:
    events[0]["data"]["git"]["commit"] = "0" * 40


@pytest.mark.parametrize("forge", [twice_as_fast, commit_of_another])
def test_a_new_log_under_rules_that_ended_is_rejected(tree: Registrar, forge: Forge) -> None:
    run = earlier(tree.root)
    assert rejections(tree) == {"SUBM-009"}  # the registry does not know of it
    tree.rows("earlier", listed(run))
    assert rejections(tree) == set()
    rewrite(run, forge)
    assert check_result(run).accepted  # by the rules that it names, nothing is wrong with it
    assert rejections(tree) == {"SUBM-009"}
    assert tree.state()[1] == [None]


@pytest.mark.parametrize("described", [True, False])
def test_a_folder_alone_is_held_to_the_list_too(
    tree: Registrar, described: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Audit, quote and verify-quote; without system.json too, where no other rule of submissions is tried."""
    honest, forged = earlier(tmp_path / "honest"), earlier(tmp_path / "forged", twice_as_fast)
    tree.rows("earlier", listed(honest))
    told = {}
    for name, run in (("honest", honest), ("forged", forged)):
        if not described:
            (run / "system.json").unlink()
        with Judge() as judge:
            told[name] = judged(judge, run, tree.root)
    (kept, rejected) = (
        [row["outcome"] for row in value["outcomes_of_submission"] if row["rule"] == "SUBM-009"]
        for value in told.values()
    )
    assert (kept, rejected) == ([KEPT], [REJECTED])
    assert (told["honest"]["level"], told["honest"]["accepted"]) == ("L0", True)
    value = told["forged"]
    rejecting = {one["rule"] for one in value["findings"] if one["severity"] == "reject"}
    assert (rejecting, value["rejections"]) == ({"SUBM-009"}, 1)
    assert (value["accepted"], value["scored"], value["level"], value["missing"]) == (False, False, None, "")
    assert value["flags"] == told["honest"]["flags"]

    where = ["--submissions", str(tree.root)]
    assert main(["quote", "--result", str(forged), *where]) == 1
    assert main(["audit", "--result", str(forged), "--out", str(tmp_path / "out"), *where]) == 1
    assert main(["quote", "--result", str(honest), *where]) == 0
    sentence = capsys.readouterr().out.splitlines()[-1]
    of_forged = sentence.replace(told["honest"]["sha256"], value["sha256"])
    assert main(["verify-quote", sentence, *where, "--in", str(tmp_path / "honest")]) == 0
    assert main(["verify-quote", of_forged, *where, "--in", str(tmp_path / "forged")]) == 1


def test_without_a_registry_nothing_is_from_before(tmp_path: Path) -> None:
    run = earlier(tmp_path)
    with Judge() as judge:
        assert not judged(judge, run, tmp_path / "none")["accepted"]


def test_the_project_s_list_is_closed() -> None:
    """It holds what was submitted under older rules, and nobody may add to it: its digest stands here."""
    rows = json.loads(LIST.read_bytes())["earlier"]
    assert {row["sha256"] for row in rows} == read_registry(LIST.parent).earlier
    found = {}
    for log in TREE.glob("*/*/*/*/*/run.jsonl"):
        data = log.read_bytes()
        version = json.loads(data.split(b"\n", 1)[0])["data"]["rules"]["version"]
        if version in ENDED:
            found[sha256_hex(data)] = (log.parent.name, version)
    assert found == {row["sha256"]: (row["run_id"], row["rules"]) for row in rows}
    assert sha256_hex(LIST.read_bytes()) == "c5c75952e1298c2891602b1f4899f115d620cf2b566abf1c9e95a5b016d68530"


def test_all_but_the_newest_ended() -> None:
    assert set(VERSIONS) - set(ENDED) == {NEWEST, "practice"}
    assert submission.rules()["SUBM-009"]["severity"] == "reject"
