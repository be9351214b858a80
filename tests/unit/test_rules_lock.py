"""The lock of images as the judge reads it, and which version's files apply."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.rules import LATEST, MalformedRules, Rules, load
from suite.rules.places import files_in, lineage, since
from tests.fixtures.good_container import IMAGES, PLATFORM, Container, rules_of
from tests.fixtures.good_log import Good, header_of, write_good


def rules_with(folder: Path) -> Rules:
    return replace(load("practice"), images_folder=folder)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A copy of the imagined lock to spoil."""
    return Path(shutil.copytree(IMAGES, tmp_path / "images"))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    entry = json.loads(path.read_text())
    change(entry)
    path.write_text(json.dumps(entry))


def test_what_a_version_lacks_comes_from_its_lineage() -> None:
    assert lineage("practice") == ("practice", "1.2", "1.1", "1.0")
    assert lineage("0.2") == ("0.2", "0.1")
    assert lineage("0.1") == ("0.1",)
    assert lineage("9.9") == lineage(LATEST)
    schemas = files_in("0.2", "schemas")
    assert {path.parts[-3] for path in schemas.values()} == {"0.1", "0.2"}
    assert set(files_in("0.1", "schemas")) < set(schemas)
    assert set(files_in("0.1", "workloads")) < set(files_in("0.2", "workloads"))
    assert files_in("0.2", "workloads")["ncf"] == files_in("0.1", "workloads")["ncf"]
    assert files_in("0.2", "workloads")["gnmt"] != files_in("0.1", "workloads")["gnmt"]
    assert load("practice").device("NVIDIA H200") == load("1.0").device("NVIDIA H200")


def test_1_0_stands_by_itself() -> None:
    assert lineage("1.0") == ("1.0",)
    assert all(name.startswith("1.0/") for name in load("1.0").stamp()["files"])
    assert set(load("0.2").checks) <= set(load("1.0").checks)
    for folder in ("schemas", "workloads", "datasets", "images", "devices"):
        assert set(files_in("0.2", folder)) - {"lock"} <= set(files_in("1.0", folder))


def test_hyperparameters_may_be_as_old_as_their_rules() -> None:
    assert since("0.1") == ("0.1",)
    assert since("practice") == since("1.2") == ("0.1", "0.2", "1.0", "1.1", "1.2")


def test_practice_has_workloads_and_datasets_of_its_own_only() -> None:
    assert {path.parts[-3] for path in files_in("practice", "workloads").values()} == {"practice"}
    assert not load("practice").has("datasets", "ml-1m")


def test_new_rules_are_not_those_of_an_older_version() -> None:
    old, new = load("0.1").checks, load("0.2").checks
    assert set(old) < set(new)
    assert "IMG-004" not in old
    # The remedy of one names the new lock; the other knows metrics of which lower is better.
    assert {name for name in old if old[name] != new[name]} == {"IMG-001", "QUAL-003"}
    assert load("0.1").bases() == {}
    assert all(name.startswith("0.1/") for name in load("0.1").stamp()["files"])


def test_the_shipped_lock_is_sound() -> None:
    rules = load(LATEST)
    for name, entry in rules.bases().items():
        assert entry["name"] == name
    for framework in rules.words["framework"]:
        current = rules.base_for(framework)
        assert current is None or current["framework"] == framework


def test_entries_are_found_by_what_they_say() -> None:
    rules, layers = rules_of("practice"), Container().layers
    assert set(rules.bases()) >= {"imagined", "seen"}
    base = rules.base_for("pytorch")
    assert base is not None
    assert base["name"] == "imagined"
    found = rules.published("ncf", "pytorch", layers["code_digest"], PLATFORM)
    assert found == tuple(layers["layers"])
    assert rules.published("ncf", "pytorch", layers["code_digest"], PLATFORM, "imagined") == found
    beside = rules.published("ncf", "pytorch", layers["code_digest"], PLATFORM, "seen")
    assert beside not in (None, found), "the same code above another base"
    assert rules.published("ncf", "pytorch", layers["code_digest"], PLATFORM, "nothing") is None
    assert rules.published("ncf", "pytorch", layers["code_digest"], "linux/arm64") is None
    assert rules.published("gnmt", "pytorch", layers["code_digest"], PLATFORM) is None
    assert rules.base_for("nothing") is None


def test_an_own_entry_stands_before_an_inherited_one(images: Path) -> None:
    inherited = sorted(load(LATEST).bases())
    if not inherited:
        pytest.skip("the shipped lock has no entry yet")
    name = inherited[0]
    shutil.copy(images / "imagined.json", images / f"{name}.json")
    edit(images / f"{name}.json", lambda entry: entry.update(name=name, current=False))
    rules = rules_with(images)
    assert rules.bases()[name]["repository"].startswith("localhost")
    assert f"practice/images/{name}.json" in rules.stamp()["files"]


def test_a_container_run_is_stamped_with_its_entry_and_layers() -> None:
    files = header_of(Good(container=Container()))["rules"]["files"]
    assert "practice/images/imagined.json" in files
    assert [name for name in files if name.startswith("practice/images/pairs/ncf-pytorch-")]
    assert "practice/images/seen.json" not in files
    assert not [name for name in header_of(Good())["rules"]["files"] if "/images/" in name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda entry: entry.pop("status"), "status"),
        (lambda entry: entry.update(index_digest="sha256:short"), "index_digest"),
        (lambda entry: entry.update(index_digest="latest"), "index_digest"),
        (lambda entry: entry.update(name="other"), "as in its file name"),
        (lambda entry: entry["platforms"][PLATFORM].update(diff_ids=None), "status resolved without"),
        (lambda entry: entry.update(unpacked_bytes=1.5), "unpacked_bytes"),
    ],
)
def test_a_malformed_entry_is_named(images: Path, change: Callable[[Any], None], words: str) -> None:
    edit(images / "imagined.json", change)
    with pytest.raises(
        MalformedRules, match=r"rules/practice/images/imagined\.json: expected .*found"
    ) as error:
        rules_with(images).bases()
    assert words in str(error.value)


def test_a_cut_entry_is_named(images: Path) -> None:
    (images / "imagined.json").write_text('{"name"')
    with pytest.raises(MalformedRules, match=r"imagined\.json: expected JSON"):
        rules_with(images).base_for("pytorch")


def test_malformed_layers_are_named(images: Path) -> None:
    path = min((images / "pairs").glob("*.json"))
    edit(path, lambda entry: entry.update(layers=[]))
    with pytest.raises(MalformedRules, match=path.name):
        rules_with(images).published("ncf", "pytorch", "0" * 64, PLATFORM)


def test_two_current_images_of_one_framework_are_a_fault(images: Path) -> None:
    edit(images / "seen.json", lambda entry: entry.update(current=True))
    with pytest.raises(MalformedRules, match="one current image of pytorch"):
        rules_with(images).bases()


@pytest.mark.parametrize("file", ["imagined.json", "pairs"])
def test_an_edited_lock_is_found(tmp_path: Path, images: Path, file: str) -> None:
    """The run was made, consistently, under an edited lock: the checker has its own."""
    result = write_good(tmp_path, Good(container=Container()))
    path = images / file
    if path.is_dir():
        code = Container().layers["code_digest"]
        path = path / f"ncf-pytorch-{code[:12]}.json"
    edit(path, lambda entry: entry.update(edited="afterwards"))
    findings = check_result(result, lambda _: rules_with(images)).findings
    assert {finding.rule for finding in findings} == {"ID-002"}
    assert check_result(result, rules_of).accepted


def test_a_machine_without_the_lock_rejects_the_run(tmp_path: Path) -> None:
    result = write_good(tmp_path, Good(container=Container()))
    rules = {finding.rule for finding in check_result(result).rejections}
    assert {"IMG-001", "ID-002"} <= rules
