"""COCO 2017 of a site: verified, resumed, indexed; every defect is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.cli import main as cli
from suite.containers.engines.container import DATA, Mount
from suite.containers.engines.workers import data_mounts
from suite.contract import BadData
from suite.datasets import catalogue, coco, fetch, prepare, site_folder, verify
from suite.datasets.catalogue import CatalogueEntry
from suite.datasets.errors import DatasetCorrupt, DatasetError, DatasetMissing
from suite.workloads.faster_rcnn import index
from suite.workloads.faster_rcnn.coco import AnnotatedImage
from tests.fixtures import coco_site

CLASSES = 91
Damage = Callable[[Path], object]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return coco_site.folders(tmp_path / "site")


def take(
    theirs: Path, root: Path, entry: CatalogueEntry | None = None, custom: bool = False
) -> prepare.PreparedDataset:
    return fetch.fetch(entry or coco_site.official(theirs), root, None, theirs, custom)


def state(folder: Path) -> list[tuple[str, int, int]]:
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return sorted((str(path), status.st_mtime_ns, status.st_size) for path, status in found)


def alike(one: list[AnnotatedImage], two: list[AnnotatedImage]) -> bool:
    def contents(found: list[AnnotatedImage]) -> list[Any]:
        return [(p.number, p.file, p.height, p.width, p.boxes.tolist(), p.labels.tolist()) for p in found]

    return contents(one) == contents(two)


def test_site_folder_is_linked_and_only_read(theirs: Path, tmp_path: Path) -> None:
    before = state(theirs)
    found = take(theirs, tmp_path / "data")
    assert state(theirs) == before
    folder = tmp_path / "data/coco-2017"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"], "no journal stays"
    assert (found.kind, len(found.files), found.generator) == ("official", 9 + 4, None)
    assert [(folder / name).readlink() for name in coco.FOLDERS] == [theirs / name for name in coco.FOLDERS]
    lines = (folder / "val2017.txt").read_text().splitlines()
    first = theirs / "val2017/000000000139.jpg"
    assert lines[0] == f"{verify.sha256_file(first)}  val2017/000000000139.jpg"
    names = ("train2017.txt", "val2017.txt", *(index.file_of(split) for split in index.SPLITS))
    assert found.digest == catalogue.digest_of({name: verify.sha256_file(folder / name) for name in names})
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["parameters"]["left_out"]["train2017"] == {"crowds": 1, "boxes without an area": 0}
    links = [Mount(theirs / name, str(theirs / name)) for name in coco.FOLDERS]
    assert data_mounts(folder) == [Mount(folder, DATA), *links]


def test_index_equals_the_annotations(theirs: Path, tmp_path: Path) -> None:
    coco_site.changed(theirs, lambda c: c["annotations"].clear(), "val2017")
    entry = coco_site.official(theirs)
    found = take(theirs, tmp_path / "data", entry)
    assert {path.name for path in found.derived} == {"index.json", "train2017.npz", "val2017.npz"}
    for split in index.SPLITS:
        assert alike(index.images(found.path, split, CLASSES), index.images(theirs, split, CLASSES))
    # The index is rewritten if it belongs to other files or is incomplete.
    for damage in (
        lambda at: at.joinpath("train2017.npz").write_bytes(b"short"),
        lambda at: at.joinpath("index.json").write_text("{}"),
        shutil.rmtree,
    ):
        damage(found.path / "index")
        again = fetch.fetch(entry, tmp_path / "data")
        assert alike(
            index.images(again.path, "train2017", CLASSES), index.images(theirs, "train2017", CLASSES)
        )
    (found.path / "index/train2017.npz").write_bytes(b"PK")
    with pytest.raises(BadData, match=r"index/train2017\.npz: expected an index.*remove the folder index"):
        index.images(found.path, "train2017", CLASSES)


def test_second_use_hashes_only_changed_files(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = coco_site.official(theirs)
    found = take(theirs, tmp_path / "data", entry)
    hashed: list[str] = []

    def hasher(path: Path, name: str = "") -> str:
        hashed.append(name)
        return verify.sha256_file(path)

    monkeypatch.setattr("suite.datasets.image_folder.sha256_file", hasher)
    prepare.check(entry, found.path, None, False)
    assert hashed == []
    (theirs / "val2017/000000000140.jpg").touch()
    prepare.check(entry, found.path, None, False)
    assert hashed == ["val2017/000000000140.jpg"]
    content = (theirs / "val2017/000000000141.jpg").read_bytes()
    (theirs / "val2017/000000000140.jpg").write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=r"val2017/000000000140\.jpg: expected sha256") as caught:
        prepare.check(entry, found.path, None, False)
    assert "make data WORKLOAD=faster_rcnn" in caught.value.fix


def record(**values: Any) -> Damage:
    """The third annotation of the training images gets these values."""
    return partial(coco_site.changed, change=lambda content: content["annotations"][2].update(values))


def cut_off(name: str) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-100])

    return damage


def resized(folder: Path) -> None:
    coco_site.changed(folder, lambda content: content["images"][2].update(height=500))


TRAIN = r"site/annotations/instances_train2017\.json: "
BAD = {
    "a box outside": (
        record(bbox=[5, 5, 600, 3]),
        TRAIN + r"annotation 2: expected a box inside 0+\d+\.jpg of ",
    ),
    "an unknown category": (
        record(category_id=91),
        TRAIN + r"annotation 2: expected a category in 1\.\.90, found 91",
    ),
    "a gap of the categories": (
        record(category_id=12),
        TRAIN + "annotation 2: expected a category of this file's",
    ),
    "an unknown image": (record(image_id=1), TRAIN + "annotation 2: expected the id of an image .*, found 1"),
    "annotations cut off": (
        cut_off("annotations/instances_val2017.json"),
        r"val2017\.json: .*JSONDecodeError.*column",
    ),
    "no annotations of val": (
        lambda at: coco_site.instances(at, "val2017").unlink(),
        r"instances_val2017\.json: expected annotations, found no such file",
    ),
    "an image missing": (
        lambda at: (at / "train2017/000000000011.jpg").unlink(),
        r"train2017/000000000011\.jpg: expected an image, found no such file",
    ),
    "an image cut off": (
        cut_off("train2017/000000000012.jpg"),
        r"train2017/000000000012\.jpg: expected a whole image, found .*truncated",
    ),
    "an image of another size": (
        resized,
        r"train2017/000000000011\.jpg: expected \d+x500 pixels as annotated, found",
    ),
    "no images": (
        lambda at: coco_site.changed(at, lambda c: c.update(images=[])),
        "expected images, found none",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_deviation_from_the_dataset_is_named(theirs: Path, tmp_path: Path, case: str) -> None:
    entry = coco_site.official(theirs)
    damage, expected_text = BAD[case]
    damage(theirs)
    with pytest.raises(DatasetError, match=expected_text) as caught:
        take(theirs, tmp_path / "data", entry)
    assert caught.value.exit_code == 12
    assert "Fix the folder" in str(caught.value)
    assert not (tmp_path / "data/coco-2017").exists()


def test_boxes_without_area_are_counted_in_official_data_and_refused_in_custom_data(
    theirs: Path, tmp_path: Path
) -> None:
    record(bbox=[3, 3, 0, 5])(theirs)
    found = take(theirs, tmp_path / "data")
    manifest = json.loads((found.path / "manifest.json").read_text())
    assert manifest["parameters"]["left_out"]["train2017"]["boxes without an area"] == 1
    with pytest.raises(
        DatasetError, match=r"annotation 2: expected a box with an area, found \[3, 3, 0, 5\]"
    ):
        take(theirs, tmp_path / "more", custom=True)


def test_other_counts_are_refused_unless_the_dataset_is_custom(theirs: Path, tmp_path: Path) -> None:
    entry = replace(coco_site.official(theirs), digest="0" * 64)  # known: of other images
    coco_site.changed(theirs, lambda content: content["annotations"].pop())
    with pytest.raises(
        DatasetCorrupt, match=r"expected 6 images, \d+ annotations, 3 categories, found 6.*CUSTOM=1"
    ):
        take(theirs, tmp_path / "data", entry)
    found = take(theirs, tmp_path / "data", entry, custom=True)
    assert (found.kind, found.name, len(found.files), len(found.derived)) == ("custom", "coco-2017", 13, 3)
    assert fetch.fetch(entry, tmp_path / "data") == found
    coco_site.changed(theirs, lambda content: content["annotations"].clear())
    with pytest.raises(DatasetCorrupt, match="expected objects to train on, found none"):
        take(theirs, tmp_path / "more", entry, custom=True)


def test_interrupted_verification_is_resumed(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (theirs / "val2017/000000000140.jpg").read_bytes()
    cut_off("val2017/000000000140.jpg")(theirs)
    with pytest.raises(DatasetCorrupt):
        take(theirs, tmp_path / "data")
    (theirs / "val2017/000000000140.jpg").write_bytes(whole)
    read: list[str] = []
    real = site_folder._digest

    def digest(path: Path, size: tuple[int, int] | None = None) -> str:
        read.append(path.name)
        return real(path, size)

    monkeypatch.setattr(site_folder, "_digest", digest)
    take(theirs, tmp_path / "data")
    assert sorted(read) == ["000000000140.jpg", "000000000141.jpg"]
    # Other annotations may have other sizes: all images are read again.
    read.clear()
    cut_off("val2017/000000000141.jpg")(theirs)
    with pytest.raises(DatasetCorrupt):
        take(theirs, tmp_path / "more")
    coco_site.changed(theirs, lambda content: content.update(info="new"))
    read.clear()
    with pytest.raises(DatasetCorrupt):
        take(theirs, tmp_path / "more")
    assert len(read) == 9


def test_folder_without_images_or_archives_is_refused(theirs: Path, tmp_path: Path) -> None:
    entry = coco_site.official(theirs)
    shutil.rmtree(theirs / "val2017")
    with pytest.raises(DatasetMissing, match="found no val2017"):
        take(theirs, tmp_path / "data", entry)
    with pytest.raises(
        DatasetMissing, match=r"or the three archives; found .*no annotations_trainval2017\.zip"
    ):
        take(tmp_path, tmp_path / "data", entry)


# The command


def test_command_verifies_and_reports(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, small = (
        catalogue.entry,
        replace(coco_site.official(theirs), weights=catalogue.entry("coco-2017").weights),
    )
    monkeypatch.setattr(catalogue, "entry", lambda name: small if name == "coco-2017" else real(name))

    def run(*arguments: str) -> int:
        options = ["--workload", "faster_rcnn", "--data-root", str(tmp_path / "data"), *arguments]
        return cli(["data", *options])

    record(bbox=[5, 5, 600, 3])(theirs)
    assert run("--from", str(theirs)) == 12
    assert "annotation 2: expected a box inside" in capsys.readouterr().err
    record(bbox=[5, 5, 6, 3])(theirs)
    assert run("--from", str(theirs)) == 0
    out = capsys.readouterr().out
    assert "digest" in out
    assert "resnet50-0676ba61.pth" in out, "the output names what quality runs lack"
    assert run("--verify") == 0
    (theirs / "val2017/000000000140.jpg").unlink()
    assert run("--verify") == 12
    assert "val2017/000000000140.jpg" in capsys.readouterr().err


def test_batches_are_equal_with_and_without_index(theirs: Path, tmp_path: Path) -> None:
    from suite.workloads.faster_rcnn import data
    from tests.unit.test_coco import job

    found = take(theirs, tmp_path / "data")
    with_index, plain = (
        data.open_data(job(folder, "infer", key=replace(job(folder, "infer").key, batch=1)))
        for folder in (found.path, theirs)
    )
    for step in range(3):
        one, two = with_index.batch(step), plain.batch(step)
        assert all((one[name] == two[name]).all() for name in one)
        assert one["boxes"].dtype == np.float32
