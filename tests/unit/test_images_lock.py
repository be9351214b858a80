"""The shipped lock, the validation of entries, and the Dockerfiles' pins to the lock."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from suite import rules
from suite.containers.images import lock, pins
from suite.containers.images.lock import Base, LockProblem, PlatformImage
from tests.unit.fake_registry import Registry

VERSION = rules.LATEST
FOLDER = rules.load(VERSION).images_folder
SHIPPED = lock.read_folder(FOLDER)
CURRENT = [base for base in SHIPPED.values() if base.current]
D1, D2 = "sha256:" + "1" * 64, "sha256:" + "2" * 64
COMPLETE = PlatformImage(D1, D2, (D1, D2), 7)
READ_BACK: dict[str, Any] = {"resolved_at": "2026-11-03T04:05:06Z", "resolver": "a test"}


def base(**changes: Any) -> Base:
    return Registry().base(repository="localhost:5000/suite/base", **changes)


def faults(**changes: Any) -> str:
    return "; ".join(lock.faults({**json.loads(json.dumps(base().entry())), **changes}))


# Shipped entries


def test_each_framework_has_one_current_base() -> None:
    assert sorted(one.framework for one in CURRENT) == ["jax", "mxnet", "pytorch", "tensorflow"]
    assert {one.name for one in SHIPPED.values() if one.status == "archived"} == {
        "tensorflow-18.12",
        "tensorflow-19.02",
        "pytorch-19.01",
        "pytorch-19.02",
        "mxnet-19.01",
        "mxnet-19.02",
        "caffe-20.03",
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_entry_is_canonical_and_states_its_source(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.json"
    assert lock.write(tmp_path, SHIPPED[name]).read_bytes() == path.read_bytes()
    entry = json.loads(path.read_bytes())
    digests = re.findall(r"sha256:\w*", path.read_text())
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests)
    # An entry that was not read from the image registry must not have the fields of one that was.
    assert (entry["status"] == "resolved") == (
        entry["resolved_at"] is not None and entry["status"] != "archived"
    )
    assert entry["resolved_at"] or "unverified" in entry["provenance"] or not digests


@pytest.mark.parametrize("name", [one.name for one in CURRENT])
def test_dockerfile_pins_the_locked_base(name: str) -> None:
    one = SHIPPED[name]
    text = pins.dockerfile(one).read_text(encoding="utf-8")
    assert pins.difference(one) is None
    froms = [line.split() for line in re.findall(r"^FROM\s+(.*)$", text, re.MULTILINE)]
    assert {parts[0] for parts in froms} == {"${BASE}"}
    stages = {parts[-1] for parts in froms}
    assert set(re.findall(r"\bfrom=([^\s,]+)", text)) <= stages, "nothing comes from another image"
    assert text.index("ARG BASE=") < text.index("FROM ")
    if one.status != "unresolved":
        assert re.search(r"^ARG BASE=\S+:\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)


def test_rules_and_images_read_the_same_lock() -> None:
    judged = rules.load(VERSION).bases()
    assert {name: dict(entry) for name, entry in judged.items()} == {
        name: json.loads(json.dumps(one.entry())) for name, one in SHIPPED.items()
    }
    assert lock.base_for(VERSION, "pytorch") == SHIPPED["pytorch-26.08"]
    assert lock.bases(VERSION) == SHIPPED


def test_unknown_framework_has_no_base() -> None:
    with pytest.raises(LockProblem, match="found 'caffe'; known are jax, mxnet, pytorch, tensorflow"):
        lock.base_for(VERSION, "caffe")


# References and status of an entry


def test_reference_prefers_the_index_digest() -> None:
    image = base().tagged
    assert base().reference == image == "localhost:5000/suite/base:26.08-py3"
    unknown = base(digest_of_unknown_kind=D2)
    assert unknown.reference == f"{image}@{D2}"
    manifest = base(platforms={"linux/amd64": COMPLETE}, digest_of_unknown_kind=D2)
    assert manifest.reference == f"{image}@{D1}"
    index = base(platforms={"linux/amd64": COMPLETE}, index_digest=D2)
    assert index.reference == f"{image}@{D2}"
    assert index.platform("linux/amd64") is COMPLETE
    assert index.platform("linux/arm64") == PlatformImage()


def test_closed_needs_digests_read_from_the_image_registry() -> None:
    ready = base(status="resolved", platforms={"linux/amd64": COMPLETE}, **READ_BACK)
    assert ready.why_not_closed is None
    for status in ("unverified", "unresolved", "archived"):
        reason = base(status=status).why_not_closed
        assert reason is not None
        assert reason.startswith("pytorch-26.08: ")


# Validation of entries


def test_valid_entry_has_no_fault(tmp_path: Path) -> None:
    sound = base(status="resolved", platforms={"linux/amd64": COMPLETE}, **READ_BACK)
    lock.write(tmp_path, sound)
    assert lock.read_folder(tmp_path) == {sound.name: sound}
    assert [path.name for path in tmp_path.iterdir()] == ["pytorch-26.08.json"], "nothing temporary stays"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"status": "fine"}, "fine"),
        ({"repository": "nvidia"}, "repository"),
        ({"repository": "nvcr.io/a b"}, "repository"),
        ({"repository": "nvcr.io/nvidia/../x"}, "repository"),
        ({"tag": None}, "tag"),
        ({"tag": "latest@sha256"}, "tag"),
        ({"index_digest": "sha256:abc"}, "index_digest"),
        ({"digest_of_unknown_kind": "sha256:abc"}, "digest_of_unknown_kind"),
        ({"architectures": [9.0]}, "architectures"),
        ({"minimum_driver": "new"}, "minimum_driver"),
        ({"compat_driver": "new"}, "compat_driver"),
        ({"contains": {"colour": "red"}}, "colour"),
        ({"platforms": {"linux/s390x": dict.fromkeys(PlatformImage.__dataclass_fields__)}}, "platforms"),
        ({"extra": 1}, "unknown field 'extra'"),
        ({"requirements": None}, "current"),
        ({"status": "archived"}, "current"),
        # A status that contradicts the fields
        ({"status": "resolved"}, "resolved: expected manifest, config and diff_ids"),
        ({"status": "unverified"}, "unverified: expected a digest, and neither"),
        ({"index_digest": D1}, "unresolved: expected no digest"),
        ({"digest_of_unknown_kind": D1}, "unresolved: expected no digest"),
        (READ_BACK, "unresolved: expected no digest"),
        ({"status": "unverified", "index_digest": D1, **READ_BACK}, "unverified: expected"),
    ],
)
def test_invalid_entry_reports_the_fault(changes: dict[str, Any], fault: str) -> None:
    assert faults() == ""
    assert fault in faults(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"platforms": {"linux/amd64": COMPLETE, "linux/arm64": COMPLETE}},  # two platforms, no index
        {"platforms": {"linux/amd64": COMPLETE}, "digest_of_unknown_kind": D1},
        {"platforms": {"linux/amd64": PlatformImage(D1, D2, None, 7)}},
        {"platforms": {"linux/amd64": COMPLETE}, "resolved_at": None},
        {"platforms": {}, "index_digest": D1},
    ],
)
def test_resolved_entry_needs_all_digests(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(LockProblem, match="resolved: expected"):
        lock.write(tmp_path, base(status="resolved", **{**READ_BACK, **changes}))
    assert not list(tmp_path.iterdir())


def test_unusable_file_is_named(tmp_path: Path) -> None:
    path = lock.write(tmp_path, base())
    path.rename(tmp_path / "other.json")
    with pytest.raises(LockProblem, match=r"other\.json: expected name 'other'"):
        lock.read_folder(tmp_path)
    (tmp_path / "other.json").write_text("{")
    with pytest.raises(LockProblem, match=r"other\.json: expected JSON"):
        lock.read_folder(tmp_path)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(LockProblem, match=r"other\.json: entry"):
        lock.read_folder(tmp_path)
