"""A dataset in a storage format is read if it is complete and equals the rules' dataset."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from suite.datasets import catalogue, converted, record_folder
from suite.datasets.converted import ConvertedDataset
from suite.datasets.errors import DatasetCorrupt, DatasetMissing
from suite.datasets.prepare import PreparedDataset
from suite.datasets.record_folder import prepare_stored
from suite.datasets.verify import sha256_file
from suite.workloads.storage import files_digest, layout

SHARDS = layout({"train": 5, "val": 2}, 2)
NAME = "imagenet-mini"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished conversion to RecordIO under a data root; the content of its shards does not matter here."""
    source = tmp_path / NAME
    source.mkdir()
    for split, count in (("train", 5), ("val", 2)):
        lines = [f"{at:064x}  {split}/n{at:08d}/a.JPEG\n" for at in range(count)]
        (source / f"{split}.txt").write_text("".join(lines))
    digest = catalogue.digest_of({f"{s}.txt": sha256_file(source / f"{s}.txt") for s in ("train", "val")})
    known = replace(catalogue.entry(NAME), digest=digest)
    monkeypatch.setattr(catalogue, "entry", lambda name: known)
    conversion = ConvertedDataset(
        tmp_path, PreparedDataset(NAME, "mini", source, digest, {}, 70, "g/1"), "recordio", 2
    )
    with conversion.building() as building:
        (building / "shards").mkdir()
        records = []
        for shard in SHARDS:
            for name in shard.files("recordio"):
                (building / "shards" / name).write_text(f"content of {name}")
            record = {"images": shard.count, "bytes_in": 10, "bytes_out": 90, "pixels": "e" * 64}
            records.append(
                (shard, record | {"written": files_digest(building / "shards", shard.files("recordio"))})
            )
        conversion.finish(records)
    return tmp_path


def test_converted_dataset_is_identified_by_its_lists(root: Path) -> None:
    ready = prepare_stored(NAME, "recordio", root)
    assert (ready.name, ready.kind, ready.bytes, ready.generator) == (NAME, "mini", 70, "g/1")
    assert ready.digest == catalogue.entry(NAME).digest
    assert ready.identity()["files"] == 2 + 5 + 2
    assert ready.path == root / f"{NAME}-recordio"
    assert {path.name for path in ready.paths} == {
        "train.txt",
        "val.txt",
        *(name for shard in SHARDS for name in shard.files("recordio")),
    }


def test_shard_is_read_again_only_when_it_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def counted(folder: Path, names: tuple[str, ...]) -> str:
        seen.append(names[0])
        return files_digest(folder, names)

    monkeypatch.setattr(converted, "files_digest", counted)
    monkeypatch.setattr(record_folder, "_SAMPLE", 1)
    prepare_stored(NAME, "recordio", root)
    assert len(seen) == len(SHARDS)
    prepare_stored(NAME, "recordio", root)
    assert len(seen) == len(SHARDS) + 1
    path = root / f"{NAME}-recordio" / SHARDS[2].files("recordio")[1]
    path.write_text("other offsets")
    with pytest.raises(DatasetCorrupt, match=r"train-00002-of-00003\.rec: expected the digest"):
        prepare_stored(NAME, "recordio", root)


def edited(file: str, edit: Callable[[str], str]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / file).write_text(edit((folder / file).read_text()))

    return change


def other_source(text: str) -> str:
    manifest = json.loads(text)
    manifest["source"]["name"] = "imagenet"
    return json.dumps(manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited("train.txt", lambda text: text.replace("a.JPEG", "b.JPEG")), "its lists: expected digest"),
        (edited("manifest.json", other_source), r"its source: expected imagenet-mini.*found imagenet,"),
        (edited("manifest.json", lambda text: text[:40]), r"manifest\.json: expected a manifest"),
        (
            lambda folder: (folder / "manifest.json").unlink(),
            r"manifest\.json: expected a manifest, found none",
        ),
        (
            lambda folder: (folder / "val-00000-of-00001.idx").unlink(),
            r"val-00000-of-00001\.idx: expected a file",
        ),
    ],
    ids=["other lists", "other source", "cut manifest", "no manifest", "no index"],
)
def test_deviation_from_the_manifest_is_named(
    root: Path, change: Callable[[Path], None], message: str
) -> None:
    change(root / f"{NAME}-recordio")
    with pytest.raises(DatasetCorrupt, match=message) as caught:
        prepare_stored(NAME, "recordio", root)
    assert "Remove the folder" in str(caught.value)


def test_missing_conversion_names_the_command(root: Path) -> None:
    with pytest.raises(DatasetMissing, match=r"make preprocess WORKLOAD=.* TO=lmdb"):
        prepare_stored(NAME, "lmdb", root)


def test_source_unknown_to_the_rules_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(catalogue.entry(NAME), digest="f" * 64)
    monkeypatch.setattr(catalogue, "entry", lambda name: other)
    with pytest.raises(DatasetCorrupt, match=r"digest f{64} \(rules\)"):
        prepare_stored(NAME, "recordio", root)
