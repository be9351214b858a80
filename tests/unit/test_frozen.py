"""Frozen rules stay as they are, and what was accepted under them stays accepted."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from suite.audit import quote
from suite.checker import check_result
from suite.report import submission
from suite.report.submission_rules import rules
from suite.rules import VERSIONS, load
from suite.rules.places import FROZEN, NEWEST, folder_of, lineage
from tests.fixtures.forging import Events, Forge, rewrite
from tools import freeze

ROOT = Path(__file__).resolve().parents[2]
# The lists themselves: whoever edits one has to say so here too.
LISTS = {
    "0.1": "19976becd56c452aed151e8b47db780b6e5617689b34534677b1396183636cde",
    "0.2": "215a5c7ea2d88c7442ae4b214b433060b47b8e85e41d707be3f4a3328e923fde",
    "1.0": "41ee74f7e12b18e5ee2322eb2243b6e2a28a68058f7902206c2c386cbe959df9",
    "1.1": "ea6c2783cf1ef5817cc8d2cbe0ae02f298fb66d7170d57317f34bfe54dbf05d8",
}


@pytest.mark.parametrize("version", freeze.frozen_versions())
def test_no_frozen_file_changed(version: str) -> None:
    assert freeze.listed(folder_of(version))
    assert freeze.departures(folder_of(version)) == []


@pytest.mark.parametrize("version", LISTS)
def test_no_list_changed(version: str) -> None:
    assert hashlib.sha256((folder_of(version) / FROZEN).read_bytes()).hexdigest() == LISTS[version]


def test_versions_that_are_not_in_use_are_frozen_whole() -> None:
    old = [version for version in VERSIONS if version not in (NEWEST, "practice")]
    assert old == [version for version in LISTS if version != NEWEST]
    for version in old:
        assert freeze.listed(folder_of(version)) == freeze.digests(folder_of(version))


def test_the_list_is_about_the_rules_and_none_of_them() -> None:
    for version in freeze.frozen_versions():
        assert not [name for name in load(version).stamp()["files"] if FROZEN in name]


def _without_last_repeat(events: Events) -> None:
    last = max(one["repeat"] for one in events if one["repeat"] is not None)
    events[:] = [one for one in events if one["repeat"] != last]


# Each breaks a rule that 0.1 had already; the chain is made whole again.
FORGERIES: dict[str, tuple[str, Forge]] = {
    "more units claimed": ("CLAIM-001", lambda events: events[-1]["data"]["claims"].update(units=10**9)),
    "another seed": (
        "SEED-001",
        lambda events: next(one for one in events if one["kind"] == "repeat_start")["data"].update(
            seed="0" * 16
        ),
    ),
    "a repeat dropped": ("RUN-003", _without_last_repeat),
    "a step with other units": (
        "UNIT-002",
        lambda events: next(one for one in events if one["kind"] == "step")["data"].update(units=1),
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("version", LISTS)
def test_a_forgery_is_rejected_by_the_frozen_rules_of_its_log(
    version: str, name: str, tmp_path: Path
) -> None:
    rule, forge = FORGERIES[name]
    good = next(
        path.parent
        for path in sorted((ROOT / "submissions").rglob("run.jsonl"))
        if f'"version":"{version}"'.encode() in path.read_bytes().partition(b"\n")[0]
    )
    copied = tmp_path / good.name
    shutil.copytree(good, copied)
    assert check_result(copied).accepted
    verdict = check_result(rewrite(copied, forge))
    assert verdict.rules == version
    assert rule in {found.rule for found in verdict.rejections}


def test_the_page_on_publishing_names_rules_that_exist() -> None:
    known = {*load("1.0").checks, *rules()}
    text = (folder_of("1.0") / "PUBLISHING.md").read_text()
    named = set(re.findall(r"\b[A-Z]+-[0-9]{3}\b", text)) - {"SHA-256"}
    assert named <= known
    assert len(named) > 40
    sentence = " ".join(text.split("```")[1].split())
    digest = quote.digest_in(sentence)
    (path,) = [
        path
        for path in sorted((ROOT / "submissions").rglob("run.jsonl"))
        if hashlib.sha256(path.read_bytes()).hexdigest() == digest
    ]
    record = check_result(path).record
    assert record is not None
    assert quote.parse(sentence) == quote.fields_of(record, "L0", "H200 virtual machine")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A frozen copy of the newest rules, and in the same folder what they have from older ones."""
    folder = tmp_path / NEWEST
    for version in reversed(lineage(NEWEST)):
        ignored = shutil.ignore_patterns(FROZEN)
        shutil.copytree(folder_of(version), folder, ignore=ignored, dirs_exist_ok=True)
    freeze.freeze(folder)
    return folder


@pytest.mark.parametrize("name", ["limits.json", "RULES.md", "workloads/ncf.json", "schemas/header.json"])
def test_an_edit_of_a_frozen_file_is_told(copy: Path, name: str) -> None:
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    (told,) = freeze.departures(copy)
    assert told.startswith(f"{NEWEST}/{name}: expected SHA-256 ")
    before = (copy / FROZEN).read_bytes()
    with pytest.raises(freeze.FrozenError, match="never changes"):
        freeze.freeze(copy)
    assert (copy / FROZEN).read_bytes() == before


def test_a_frozen_file_that_went_is_told(copy: Path) -> None:
    (copy / "devices" / "h200.json").unlink()
    (told,) = freeze.departures(copy)
    assert "no such file" in told


def test_a_new_file_may_be_added_and_is_then_frozen_too(copy: Path) -> None:
    (copy / "devices" / "imagined.json").write_text("{}")
    assert freeze.departures(copy) == []
    freeze.freeze(copy)
    assert "devices/imagined.json" in freeze.listed(copy)
    (copy / "devices" / "imagined.json").write_text("[]")
    assert len(freeze.departures(copy)) == 1


def test_an_image_may_be_resolved_later_and_then_stays(copy: Path) -> None:
    path = copy / "images" / "pytorch-26.08.json"
    entry = json.loads(path.read_text())
    if entry["status"] == "resolved":
        entry["status"] = "unresolved"
        (copy / FROZEN).unlink()
        path.write_text(json.dumps(entry))
        freeze.freeze(copy)
    assert "images/pytorch-26.08.json" not in freeze.listed(copy)
    path.write_text(json.dumps({**entry, "status": "resolved"}))
    assert freeze.departures(copy) == []
    freeze.freeze(copy)
    path.write_text(json.dumps(entry))
    assert len(freeze.departures(copy)) == 1


def test_the_command_refuses_what_it_must_not_freeze(capsys: pytest.CaptureFixture[str]) -> None:
    assert freeze.main([]) == 2
    assert freeze.main(["practice"]) == 2
    assert freeze.main(["9.9"]) == 2
    assert "usage" in capsys.readouterr().err


def test_accepted_submissions_stay_accepted_under_their_own_rules() -> None:
    entries, about = submission.check_tree(ROOT / "submissions")
    assert entries
    assert [str(one.folder) for one in entries if one.rejected] == []
    assert [one.fault for one in entries if one.fault is not None] == []
    assert [found for found in about if found.severity == "reject"] == []
    frozen = {check_result(one.folder).rules for one in entries[::8]}
    assert frozen <= set(VERSIONS)
    assert frozen & set(LISTS)  # logs of a frozen version are among them
