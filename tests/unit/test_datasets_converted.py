"""A converted dataset: built in a work folder, verified by digest, bound to its source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.datasets.converted import ConvertedDataset
from suite.datasets.errors import DatasetCorrupt, NoSpace
from suite.datasets.prepare import PreparedDataset
from suite.workloads.storage import Shard, files_digest, layout

BATCH = 2
SHARDS = layout({"train": 5, "val": 2}, BATCH)


@pytest.fixture
def source(tmp_path: Path) -> PreparedDataset:
    """A dataset with lists; no test reads its images."""
    folder = tmp_path / "data" / "imagined"
    folder.mkdir(parents=True)
    for split in ("train", "val"):
        (folder / f"{split}.txt").write_text(f"the list of {split}\n")
    return PreparedDataset("imagined", "official", folder, "d" * 64, {}, 70, None)


def of(source: PreparedDataset, batch: int = BATCH) -> ConvertedDataset:
    return ConvertedDataset(source.path.parent, source, "tfrecord", batch)


def written(building: Path, shard: Shard) -> dict[str, Any]:
    """The files of a shard, and the record that a worker would report."""
    folder = building / "shards"
    folder.mkdir(exist_ok=True)
    names = shard.files("tfrecord")
    for name in names:
        (folder / name).write_text(f"content of {name}")
    note = {"images": shard.count, "bytes_in": 10, "bytes_out": 90, "pixels": "e" * 64}
    return note | {"written": files_digest(folder, names)}


@pytest.fixture
def finished(source: PreparedDataset) -> ConvertedDataset:
    """A finished conversion."""
    conversion = of(source)
    with conversion.building() as building:
        conversion.finish([(shard, written(building, shard)) for shard in SHARDS])
    return conversion


def test_finished_conversion_has_lists_storage_json_and_manifest(
    finished: ConvertedDataset, source: PreparedDataset
) -> None:
    folder = finished.target
    assert folder == source.path.parent / "imagined-tfrecord"
    stored = json.loads((folder / "storage.json").read_text())
    assert stored == {"storage": "tfrecord", "shards": {"train": [2, 2, 1], "val": [2]}}
    for split in ("train", "val"):
        assert (folder / f"{split}.txt").read_text() == (source.path / f"{split}.txt").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    named = {"name": "imagined", "kind": "official", "digest": "d" * 64, "bytes": 70, "generator": None}
    assert manifest["source"] == named | {"images_per_shard": BATCH}
    assert sorted(manifest["shards"]) == sorted(shard.name("tfrecord") for shard in SHARDS)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["imagined", "imagined-tfrecord"]
    progress: list[tuple[int, int | None]] = []
    assert finished.is_complete(SHARDS, lambda _, done, total: progress.append((done, total)))
    assert progress[-1] == (7, 7)


@pytest.mark.parametrize(
    ("edit", "message"), [("changed", "expected the digest"), ("gone", "expected a file")]
)
def test_changed_shard_is_named(finished: ConvertedDataset, edit: str, message: str) -> None:
    path = finished.target / SHARDS[1].files("tfrecord")[0]
    if edit == "changed":
        path.write_text("other content")
    else:
        path.unlink()
    with pytest.raises(DatasetCorrupt, match=rf"{path.name}: {message}.*Remove the folder"):
        finished.is_complete(SHARDS)


def test_conversion_with_another_source_or_shard_size_is_refused(
    finished: ConvertedDataset, source: PreparedDataset
) -> None:
    with pytest.raises(DatasetCorrupt, match=r"expected a conversion of .*ffff"):
        of(replace(source, digest="f" * 64)).is_complete(SHARDS)
    with pytest.raises(DatasetCorrupt, match="'images_per_shard': 3"):
        of(source, 3).is_complete(SHARDS)


def test_unfinished_work_is_kept_only_for_the_same_source(source: PreparedDataset) -> None:
    with of(source).building() as building:
        written(building, SHARDS[0])
    with of(source).building() as building:
        assert len(list(building.glob("shards/*"))) == 2
    assert not of(source).is_complete(SHARDS)
    with of(replace(source, digest="f" * 64)).building() as building:
        assert not list(building.glob("shards/*"))


def test_second_process_is_refused_during_a_conversion(source: PreparedDataset) -> None:
    first, second = of(source).building(), of(source).building()
    with first, pytest.raises(DatasetCorrupt, match="one conversion at a time"):
        second.__enter__()


def test_conversion_without_space_is_refused(source: PreparedDataset) -> None:
    building = of(replace(source, bytes=1 << 60)).building()
    with pytest.raises(NoSpace, match="GB free for imagined-tfrecord"):
        building.__enter__()
