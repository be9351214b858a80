"""The files of frozen rules do not change, and the tool refuses to change them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from suite.audit import quote
from suite.checker import check_result
from suite.rules import LATEST, SHIPPED, RulesRoot, load
from suite.rules.root import FROZEN
from suite.submissions.rule_table import rules
from tests.fixtures.honest import NAMES, write_honest
from tools import freeze


@pytest.mark.parametrize("version", freeze.frozen_versions())
def test_no_frozen_file_changed(version: str) -> None:
    assert freeze.listed(SHIPPED.folder(version))
    assert freeze.departures(SHIPPED.folder(version)) == []


def test_frozen_list_is_not_a_rule_file(copy: Path) -> None:
    root = RulesRoot(copy.parent)
    assert FROZEN in {path.name for path in copy.iterdir()}
    assert not [name for name in load(LATEST, root).stamp()["files"] if FROZEN in name]


def test_publishing_page_names_existing_rules() -> None:
    text = (SHIPPED.folder(LATEST) / "PUBLISHING.md").read_text()
    named = set(re.findall(r"\b[A-Z]+-[0-9]{3}\b", text)) - {"SHA-256"}
    assert named <= {*load(LATEST).checks, *rules()}
    assert len(named) > 40


def test_publishing_page_shows_the_derived_sentence(tmp_path: Path) -> None:
    text = (SHIPPED.folder(LATEST) / "PUBLISHING.md").read_text()
    template = " ".join(text.split("```")[1].split())
    record = check_result(write_honest(NAMES[0], tmp_path)).record
    assert record is not None
    fields = quote.fields_of(record, "L0", "a machine")
    shown = re.sub(r"<([a-z0-9]+)>", lambda found: fields[found[1]], template)
    assert set(re.findall(r"<([a-z0-9]+)>", template)) == set(fields)
    assert quote.parse(shown) == fields


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A frozen copy of the rules in use."""
    folder = tmp_path / LATEST
    shutil.copytree(SHIPPED.folder(LATEST), folder, ignore=shutil.ignore_patterns(FROZEN))
    freeze.freeze(folder)
    return folder


@pytest.mark.parametrize("name", ["limits.json", "RULES.md", "workloads/ncf.json", "schemas/header.json"])
def test_edit_of_a_frozen_file_is_reported(copy: Path, name: str) -> None:
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    (departure,) = freeze.departures(copy)
    assert departure.startswith(f"{LATEST}/{name}: expected SHA-256 ")
    before = (copy / FROZEN).read_bytes()
    with pytest.raises(freeze.FrozenError, match="never changes"):
        freeze.freeze(copy)
    assert (copy / FROZEN).read_bytes() == before


def test_missing_frozen_file_is_reported(copy: Path) -> None:
    (copy / "devices" / "h200.json").unlink()
    (departure,) = freeze.departures(copy)
    assert "no such file" in departure


def test_added_file_is_frozen_by_the_next_freeze(copy: Path) -> None:
    (copy / "devices" / "imagined.json").write_text("{}")
    assert freeze.departures(copy) == []
    freeze.freeze(copy)
    assert "devices/imagined.json" in freeze.listed(copy)
    (copy / "devices" / "imagined.json").write_text("[]")
    assert len(freeze.departures(copy)) == 1


def test_image_may_be_resolved_once_after_freezing(copy: Path) -> None:
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


def test_freeze_command_refuses_unknown_and_practice_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert freeze.main([]) == 2
    assert freeze.main(["practice"]) == 2
    assert freeze.main(["9.9"]) == 2
    assert "usage" in capsys.readouterr().err
