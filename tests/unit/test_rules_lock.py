"""The lock of container images, and the files that apply to a rules version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.rules import LATEST, SHIPPED, MalformedRules, Rules, load
from tests.fixtures.good_container import IMAGES, PLATFORM, Container, rules_of
from tests.fixtures.good_log import Good, header_of, write_good


def rules_with(folder: Path) -> Rules:
    return replace(load("practice"), images_folder=folder)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A copy of the imagined lock that tests may edit."""
    return Path(shutil.copytree(IMAGES, tmp_path / "images"))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    entry = json.loads(path.read_text())
    change(entry)
    path.write_text(json.dumps(entry))


def test_version_inherits_missing_files_from_its_base() -> None:
    assert SHIPPED.lineage("practice") == ("practice", LATEST)
    assert SHIPPED.lineage("9.9") == SHIPPED.lineage(LATEST) == (LATEST,)
    assert {path.parts[-3] for path in SHIPPED.files("practice", "schemas").values()} == {LATEST}
    assert load("practice").device("NVIDIA H200") == load(LATEST).device("NVIDIA H200")
    assert all(name.startswith(f"{LATEST}/") for name in load(LATEST).stamp()["files"])


def test_practice_inherits_no_workloads_or_datasets() -> None:
    assert {path.parts[-3] for path in SHIPPED.files("practice", "workloads").values()} == {"practice"}
    assert not load("practice").has("datasets", "ml-1m")


def test_shipped_lock_is_valid() -> None:
    rules = load(LATEST)
    for name, entry in rules.bases().items():
        assert entry["name"] == name
    for framework in ("pytorch", "tensorflow", "mxnet"):
        current = rules.base_for(framework)
        assert current is None or current["framework"] == framework


def test_published_layers_are_found_by_their_fields() -> None:
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


def test_entry_of_the_version_precedes_an_inherited_entry(images: Path) -> None:
    inherited = sorted(load(LATEST).bases())
    if not inherited:
        pytest.skip("the shipped lock has no entry yet")
    name = inherited[0]
    shutil.copy(images / "imagined.json", images / f"{name}.json")
    edit(images / f"{name}.json", lambda entry: entry.update(name=name, current=False))
    rules = rules_with(images)
    assert rules.bases()[name]["repository"].startswith("localhost")
    assert f"practice/images/{name}.json" in rules.stamp()["files"]


def test_stamp_of_a_container_run_lists_entry_and_layers() -> None:
    files = header_of(Good(container=Container()))["rules"]["files"]
    assert "practice/images/imagined.json" in files
    assert [name for name in files if name.startswith("practice/images/pairs/ncf-pytorch-")]
    assert "practice/images/seen.json" not in files
    assert not [name for name in header_of(Good())["rules"]["files"] if "/images/" in name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.pop("status"), "status"),
        (lambda entry: entry.update(index_digest="sha256:short"), "index_digest"),
        (lambda entry: entry.update(index_digest="latest"), "index_digest"),
        (lambda entry: entry.update(name="other"), "as in its file name"),
        (lambda entry: entry["platforms"][PLATFORM].update(diff_ids=None), "status resolved without"),
        (lambda entry: entry.update(unpacked_bytes=1.5), "unpacked_bytes"),
    ],
)
def test_malformed_entry_error_names_the_file(
    images: Path, change: Callable[[Any], None], message: str
) -> None:
    edit(images / "imagined.json", change)
    with pytest.raises(
        MalformedRules, match=r"rules/practice/images/imagined\.json: expected .*found"
    ) as error:
        rules_with(images).bases()
    assert message in str(error.value)


def test_truncated_entry_error_names_the_file(images: Path) -> None:
    (images / "imagined.json").write_text('{"name"')
    with pytest.raises(MalformedRules, match=r"imagined\.json: expected JSON"):
        rules_with(images).base_for("pytorch")


def test_malformed_layers_error_names_the_file(images: Path) -> None:
    path = min((images / "pairs").glob("*.json"))
    edit(path, lambda entry: entry.update(layers=[]))
    with pytest.raises(MalformedRules, match=path.name):
        rules_with(images).published("ncf", "pytorch", "0" * 64, PLATFORM)


def test_two_current_images_of_one_framework_raise(images: Path) -> None:
    edit(images / "seen.json", lambda entry: entry.update(current=True))
    with pytest.raises(MalformedRules, match="one current image of pytorch"):
        rules_with(images).bases()


@pytest.mark.parametrize("file", ["imagined.json", "pairs"])
def test_run_under_an_edited_lock_is_rejected(tmp_path: Path, images: Path, file: str) -> None:
    """The run agrees with an edited lock, but the checker uses the lock in its rules."""
    result = write_good(tmp_path, Good(container=Container()))
    path = images / file
    if path.is_dir():
        code = Container().layers["code_digest"]
        path = path / f"ncf-pytorch-{code[:12]}.json"
    edit(path, lambda entry: entry.update(edited="afterwards"))
    findings = check_result(result, lambda _: rules_with(images)).findings
    assert {finding.rule for finding in findings} == {"ID-002"}
    assert check_result(result, rules_of).accepted


def test_machine_without_the_lock_rejects_the_run(tmp_path: Path) -> None:
    result = write_good(tmp_path, Good(container=Container()))
    rules = {finding.rule for finding in check_result(result).rejections}
    assert {"IMG-001", "ID-002"} <= rules
