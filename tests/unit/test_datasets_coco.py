"""COCO 2017 that a site has, or from its archives: verified, resumed, indexed; what is wrong is named."""

from __future__ import annotations

import argparse
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.cli import data as command
from suite.datasets import coco, fetch, prepare, registry, site_folder, verify
from suite.datasets.errors import DatasetCorrupt, DatasetError, DatasetMissing, FetchFailed
from suite.datasets.registry import Entry, Weights
from suite.runtime.container import DATA, Mount
from suite.runtime.workers import data_mounts
from suite.workloads.contract import BadData
from suite.workloads.faster_rcnn import index
from suite.workloads.faster_rcnn.coco import Picture
from tests.fixtures import coco_site

CLASSES = 91
Damage = Callable[[Path], object]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return coco_site.folders(tmp_path / "site")


def take(theirs: Path, root: Path, entry: Entry | None = None, own: bool = False) -> prepare.Prepared:
    return fetch.fetch(entry or coco_site.official(theirs), root, None, theirs, own)


def state(folder: Path) -> list[tuple[str, int, int]]:
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return sorted((str(path), status.st_mtime_ns, status.st_size) for path, status in found)


def alike(one: list[Picture], two: list[Picture]) -> bool:
    def told(found: list[Picture]) -> list[Any]:
        return [(p.number, p.file, p.height, p.width, p.boxes.tolist(), p.labels.tolist()) for p in found]

    return told(one) == told(two)


def test_a_folder_is_taken_in_place_and_read_only(theirs: Path, tmp_path: Path) -> None:
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
    assert found.digest == registry.digest_of({name: verify.sha256_file(folder / name) for name in names})
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["parameters"]["left_out"]["train2017"] == {"crowds": 1, "boxes without an area": 0}
    links = [Mount(theirs / name, str(theirs / name)) for name in coco.FOLDERS]
    assert data_mounts(folder) == [Mount(folder, DATA), *links]


def test_the_index_is_the_annotations(theirs: Path, tmp_path: Path) -> None:
    coco_site.changed(theirs, lambda c: c["annotations"].clear(), "val2017")
    entry = coco_site.official(theirs)
    found = take(theirs, tmp_path / "data", entry)
    assert {path.name for path in found.derived} == {"index.json", "train2017.npz", "val2017.npz"}
    for split in index.SPLITS:
        assert alike(index.pictures(found.path, split, CLASSES), index.pictures(theirs, split, CLASSES))
    # It is made anew where it is of something else, or not whole.
    for damage in (
        lambda at: at.joinpath("train2017.npz").write_bytes(b"short"),
        lambda at: at.joinpath("index.json").write_text("{}"),
        shutil.rmtree,
    ):
        damage(found.path / "index")
        again = fetch.fetch(entry, tmp_path / "data")
        assert alike(
            index.pictures(again.path, "train2017", CLASSES), index.pictures(theirs, "train2017", CLASSES)
        )
    (found.path / "index/train2017.npz").write_bytes(b"PK")
    with pytest.raises(BadData, match=r"index/train2017\.npz: expected an index.*remove the folder index"):
        index.pictures(found.path, "train2017", CLASSES)


def test_a_later_use_hashes_what_changed(
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
    assert "make data WORKLOAD=faster_rcnn" in caught.value.mend


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
        r"train2017/000000000011\.jpg: expected a picture, found no such file",
    ),
    "an image cut off": (
        cut_off("train2017/000000000012.jpg"),
        r"train2017/000000000012\.jpg: expected a whole picture, found .*truncated",
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
def test_what_is_not_the_dataset_is_named(theirs: Path, tmp_path: Path, case: str) -> None:
    entry = coco_site.official(theirs)
    damage, words = BAD[case]
    damage(theirs)
    with pytest.raises(DatasetError, match=words) as caught:
        take(theirs, tmp_path / "data", entry)
    assert caught.value.exit_code == 12
    assert "Mend the folder" in str(caught.value)
    assert not (tmp_path / "data/coco-2017").exists()


def test_boxes_without_an_area_are_counted_in_the_publisher_s_file_and_refused_in_one_s_own(
    theirs: Path, tmp_path: Path
) -> None:
    record(bbox=[3, 3, 0, 5])(theirs)
    found = take(theirs, tmp_path / "data")
    manifest = json.loads((found.path / "manifest.json").read_text())
    assert manifest["parameters"]["left_out"]["train2017"]["boxes without an area"] == 1
    with pytest.raises(
        DatasetError, match=r"annotation 2: expected a box with an area, found \[3, 3, 0, 5\]"
    ):
        take(theirs, tmp_path / "more", own=True)


def test_other_counts_are_refused_and_taken_as_one_s_own(theirs: Path, tmp_path: Path) -> None:
    entry = replace(coco_site.official(theirs), digest="0" * 64)  # known: of other images
    coco_site.changed(theirs, lambda content: content["annotations"].pop())
    with pytest.raises(
        DatasetCorrupt, match=r"expected 6 images, \d+ annotations, 3 categories, found 6.*OWN=1"
    ):
        take(theirs, tmp_path / "data", entry)
    found = take(theirs, tmp_path / "data", entry, own=True)
    assert (found.kind, found.name, len(found.files), len(found.derived)) == ("own", "coco-2017", 13, 3)
    assert fetch.fetch(entry, tmp_path / "data") == found
    coco_site.changed(theirs, lambda content: content["annotations"].clear())
    with pytest.raises(DatasetCorrupt, match="expected objects to train on, found none"):
        take(theirs, tmp_path / "more", entry, own=True)


def test_an_interrupted_verification_goes_on(
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
    # Other annotations may have other sizes: all is read again.
    read.clear()
    cut_off("val2017/000000000141.jpg")(theirs)
    with pytest.raises(DatasetCorrupt):
        take(theirs, tmp_path / "more")
    coco_site.changed(theirs, lambda content: content.update(info="new"))
    read.clear()
    with pytest.raises(DatasetCorrupt):
        take(theirs, tmp_path / "more")
    assert len(read) == 9


def test_a_folder_without_either_form(theirs: Path, tmp_path: Path) -> None:
    entry = coco_site.official(theirs)
    shutil.rmtree(theirs / "val2017")
    with pytest.raises(DatasetMissing, match="found no val2017"):
        take(theirs, tmp_path / "data", entry)
    with pytest.raises(
        DatasetMissing, match=r"or the three archives; found .*no annotations_trainval2017\.zip"
    ):
        take(tmp_path, tmp_path / "data", entry)


# Archives


def test_archives_that_somebody_has(theirs: Path, tmp_path: Path) -> None:
    unpacked = coco_site.archives(theirs, tmp_path / "zips")
    entry = replace(coco_site.official(theirs), unpacked=unpacked)
    found = take(tmp_path / "zips", tmp_path / "data", entry)
    assert found.digest == take(theirs, tmp_path / "linked", entry).digest
    names = {path.relative_to(found.path).as_posix() for path in found.path.rglob("*") if path.is_file()}
    assert names == {
        *found.files,
        "manifest.json",
        ".verified.json",
        *(f"index/{p.name}" for p in found.derived),
    }
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"]
    assert len(list((tmp_path / "zips").iterdir())) == 3, "only read"


def test_an_archive_of_another_content(theirs: Path, tmp_path: Path) -> None:
    unpacked = coco_site.archives(theirs, tmp_path / "zips")
    entry = replace(coco_site.official(theirs), unpacked=unpacked)
    path = tmp_path / "zips/val2017.zip"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=r"val2017\.zip: expected sha256"):
        take(tmp_path / "zips", tmp_path / "data", entry)
    (theirs / "val2017/000000000140.jpg").unlink()
    shutil.rmtree(tmp_path / "zips")
    entry = replace(entry, unpacked=coco_site.archives(theirs, tmp_path / "zips"))
    with pytest.raises(DatasetCorrupt, match=r"val2017\.zip: .*no item named 'val2017/000000000140\.jpg'"):
        take(tmp_path / "zips", tmp_path / "data", entry)
    assert not (tmp_path / "data/coco-2017").exists()


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        self.server.seen.append(self.path)  # type: ignore[attr-defined]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """Serves the folder ``zips``."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "zips")))
    server.daemon_threads, server.seen = True, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_archives_are_fetched_unpacked_and_removed(
    theirs: Path, tmp_path: Path, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    unpacked = coco_site.archives(theirs, tmp_path / "zips", address)
    entry = replace(coco_site.official(theirs), unpacked=unpacked)
    train = tmp_path / "zips/train2017.zip"
    train.rename(tmp_path / "later.zip")
    with pytest.raises(FetchFailed, match="404"):
        fetch.fetch(entry, tmp_path / "data")
    (tmp_path / "later.zip").rename(train)
    server.seen.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(coco, "verify_files", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch(entry, tmp_path / "data")
    assert server.seen == ["/train2017.zip"], "the others were unpacked before"  # type: ignore[attr-defined]
    monkeypatch.undo()
    found = fetch.fetch(entry, tmp_path / "data")
    assert len(server.seen) == 1  # type: ignore[attr-defined]
    assert (found.digest, len(found.derived)) == (take(theirs, tmp_path / "linked", entry).digest, 3)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"], "no archive stays"


def test_the_backbone_is_fetched_and_used_only_if_it_is_the_published_one(
    theirs: Path, tmp_path: Path, server: ThreadingHTTPServer
) -> None:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    weights = Weights(f"{address}/resnet50-0676ba61.pth", None, "0676ba61")
    entry = replace(coco_site.official(theirs), weights=weights)
    found = take(theirs, tmp_path / "data", entry)
    assert server.seen == [], "FROM= fetches nothing"  # type: ignore[attr-defined]
    with pytest.raises(FetchFailed, match=r"coco-2017 is verified in .*404.*give it as FROM=path"):
        fetch.fetch(entry, tmp_path / "data")
    (tmp_path / "zips").mkdir()
    (tmp_path / "zips/resnet50-0676ba61.pth").write_bytes(b"another network")
    with pytest.raises(DatasetCorrupt, match=r"resnet50-0676ba61\.pth.*: expected sha256 0676ba61…, found"):
        fetch.fetch(entry, tmp_path / "data")
    with pytest.raises(DatasetCorrupt, match=r"zips/resnet50-0676ba61\.pth: expected sha256 0676ba61"):
        fetch.fetch(entry, tmp_path / "data", None, tmp_path / "zips/resnet50-0676ba61.pth")
    assert fetch.fetch(entry, tmp_path / "data", None, theirs) == found, "a folder without it"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"], "no download stays"
    assert not list(found.path.glob("*.npz"))


def test_what_the_rules_say_of_the_archives() -> None:
    entry = registry.entry("coco-2017")
    assert entry.unpacked is not None
    assert [(one.member, one.bytes) for one in entry.unpacked.archives] == [
        ("annotations", 252_907_541),
        ("val2017", 815_585_330),
        ("train2017", 19_336_861_798),
    ]
    assert entry.images is not None
    assert (entry.images.train, entry.images.val, entry.images.classes) == (118_287, 5_000, 80)
    assert entry.fetchable
    assert "20.4 GB" in coco.describe(entry)[0]


def test_the_command(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, small = (
        registry.entry,
        replace(coco_site.official(theirs), weights=registry.entry("coco-2017").weights),
    )
    monkeypatch.setattr(registry, "entry", lambda name: small if name == "coco-2017" else real(name))

    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        words = ["--workload", "faster_rcnn", "--data-root", str(tmp_path / "data"), *arguments]
        return command.main(parser.parse_args(words))

    record(bbox=[5, 5, 600, 3])(theirs)
    assert run("--from", str(theirs)) == 12
    assert "annotation 2: expected a box inside" in capsys.readouterr().err
    record(bbox=[5, 5, 6, 3])(theirs)
    assert run("--from", str(theirs)) == 0
    out = capsys.readouterr().out
    assert "digest" in out
    assert "resnet50-0676ba61.pth" in out, "what quality runs lack is said"
    assert run("--verify") == 0
    (theirs / "val2017/000000000140.jpg").unlink()
    assert run("--verify") == 12
    assert "val2017/000000000140.jpg" in capsys.readouterr().err


def test_a_worker_reads_the_same_batches_with_the_index(theirs: Path, tmp_path: Path) -> None:
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
