"""Images of a site: linked, verified, resumed, verified again, and never changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from suite.cli import main as cli
from suite.containers.engines.container import Mount
from suite.datasets import catalogue, fetch, image_folder, prepare, site_folder, verify
from suite.datasets.catalogue import CatalogueEntry
from suite.datasets.errors import DatasetCorrupt, DatasetError, DatasetMissing
from suite.workloads._classification.sources import Files, validation_labels
from tests.fixtures import image_files

Damage = Callable[[Path], object]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return image_files.folders(tmp_path / "site")


def take(
    theirs: Path, root: Path, entry: CatalogueEntry | None = None, custom: bool = False
) -> prepare.PreparedDataset:
    return fetch.fetch(entry or image_files.official(), root, None, theirs, custom)


def state(folder: Path) -> list[tuple[str, int, int]]:
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return sorted((str(path), status.st_mtime_ns, status.st_size) for path, status in found)


def test_site_folder_is_linked_and_only_read(theirs: Path, tmp_path: Path) -> None:
    (theirs / "train/notes.txt").write_text("not an image")
    (theirs / "train/.hidden").mkdir()
    before = state(theirs)
    found = take(theirs, tmp_path / "data")
    assert state(theirs) == before
    folder = tmp_path / "data/imagenet"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["imagenet"], "no journal stays"
    assert (folder / "train").readlink() == theirs / "train"
    assert (found.kind, len(found.files), found.generator) == ("official", 22, None)
    assert found.bytes == sum(path.stat().st_size for path in folder.glob("*/*/*.JPEG")) + sum(
        path.stat().st_size for path in folder.glob("*.txt")
    )
    lines = (folder / "val.txt").read_text().splitlines()
    first = theirs / "val/n00000000/val_0.JPEG"
    assert lines[0] == f"{hashlib.sha256(first.read_bytes()).hexdigest()}  val/n00000000/val_0.JPEG"
    lists = {name: verify.sha256_file(folder / name) for name in ("train.txt", "val.txt")}
    assert found.digest == catalogue.digest_of(lists)
    assert Files(folder, 64, 4, 0.08, seed=1).labels["train"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert validation_labels(folder, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_second_use_hashes_changed_files_and_a_sample(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = image_files.official()
    take(theirs, tmp_path, entry)
    hashed: list[str] = []

    def hasher(path: Path, name: str = "") -> str:
        hashed.append(name)
        return verify.sha256_file(path)

    monkeypatch.setattr("suite.datasets.image_folder.sha256_file", hasher)
    folder = tmp_path / "imagenet"
    prepare.check(entry, folder, None, False)
    assert hashed == []
    (theirs / "train/n00000001/train_2.JPEG").touch()
    prepare.check(entry, folder, None, False)
    assert hashed == ["train/n00000001/train_2.JPEG"]
    hashed.clear()
    monkeypatch.setattr(verify, "_LARGE", 10)
    monkeypatch.setattr(verify, "SAMPLE", 5)
    for _ in range(20):
        prepare.check(entry, folder, None, False)
    assert len(hashed) == 100
    assert len(set(hashed)) > 10, "not always the same ones"
    hashed.clear()
    prepare.check(entry, folder, None, True)
    assert set(hashed) > {"train/n00000001/train_2.JPEG", "val/n00000003/val_1.JPEG"}


def test_quick_check_reads_only_the_lists(theirs: Path, tmp_path: Path) -> None:
    entry = image_files.official()
    take(theirs, tmp_path, entry)
    shutil.rmtree(theirs / "train/n00000001")
    prepare.check(entry, tmp_path / "imagenet", None, False, whole=False)
    with pytest.raises(DatasetCorrupt, match=r"train/n00000001/train_0\.JPEG: .*no such file"):
        prepare.check(entry, tmp_path / "imagenet", None, False)


def other_content(folder: Path) -> None:
    path = folder / "val/n00000002/val_1.JPEG"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_content, r"val/n00000002/val_1\.JPEG: expected sha256"),
        (lambda folder: (folder / "train/n00000000/train_0.JPEG").unlink(), r"train_0\.JPEG.*no such file"),
        (lambda folder: (folder / "train/n00000000/train_0.JPEG").write_bytes(b""), r"train_0\.JPEG"),
    ],
)
def test_changed_file_is_named(theirs: Path, tmp_path: Path, damage: Damage, message: str) -> None:
    entry = image_files.official()
    take(theirs, tmp_path, entry)
    damage(theirs)
    with pytest.raises(DatasetCorrupt, match=message) as caught:
        prepare.check(entry, tmp_path / "imagenet", None, False)
    assert "make data WORKLOAD=resnet50 FROM=path" in caught.value.fix


def test_edited_lists_are_refused(theirs: Path, tmp_path: Path) -> None:
    entry = image_files.official()
    take(theirs, tmp_path, entry)
    path = tmp_path / "imagenet/val.txt"
    path.write_text(path.read_text().replace("n00000001", "n00000002", 1))
    with pytest.raises(DatasetCorrupt, match=r"val\.txt: expected sha256"):
        prepare.check(entry, tmp_path / "imagenet", None, False)


def removed(*names: str) -> Damage:
    """Removes files and folders."""

    def damage(folder: Path) -> None:
        for path in (folder / name for name in names):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    return damage


def truncated(folder: Path) -> None:
    path = folder / "train/n00000003/train_1.JPEG"
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, r"train/n00000003/train_1\.JPEG: expected a whole image, found .*truncated"),
        (lambda at: (at / "val/n00000000/val_0.JPEG").write_bytes(b"GIF"), "val_0.*no image of a known"),
        (removed("train/n00000003"), r"train/n00000003: .*equal classes in train and val"),
        (
            removed("train/n00000003", "val/n00000003"),
            "found 3 classes",
        ),
        (
            removed("train/n00000000/train_0.JPEG"),
            "expected 4 classes, 12 .*11 and 8 images",
        ),
        (
            removed("val/n00000001/val_0.JPEG", "val/n00000001/val_1.JPEG"),
            "val/n00000001: .*images.*none",
        ),
        (
            removed(*(f"val/n0000000{label}" for label in range(4))),
            "a folder for each class, found none",
        ),
        (lambda at: (at / "train/n00000000/a\nb.JPEG").write_bytes(b""), "printable"),
    ],
)
def test_folder_that_is_not_the_dataset_is_refused(
    theirs: Path, tmp_path: Path, damage: Damage, message: str
) -> None:
    damage(theirs)
    with pytest.raises(DatasetCorrupt, match=message) as caught:
        take(theirs, tmp_path / "data")
    assert caught.value.exit_code == 12
    assert not (tmp_path / "data/imagenet").exists()


def test_folder_without_splits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site/train/n1").mkdir(parents=True)
    (tmp_path / "site/train/n1/a.JPEG").write_bytes(b"")
    with pytest.raises(DatasetMissing, match="expected a folder val"):
        take(tmp_path / "site", tmp_path / "data")
    with pytest.raises(DatasetMissing, match="expected a folder train"):
        take(tmp_path / "nothing", tmp_path / "data")


def test_interrupted_verification_is_resumed(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncated(theirs)
    with pytest.raises(DatasetCorrupt):
        take(theirs, tmp_path / "data")
    journal = tmp_path / "data/.imagenet.verifying"
    done = len(journal.read_text().splitlines()) - 1
    assert done == 10, "all before the bad one, in the order of names"
    with journal.open("a") as stream:
        stream.write("0123 cut off")
    pixels = np.zeros((50, 50, 3), np.uint8)
    Image.fromarray(pixels).save(theirs / "train/n00000003/train_1.JPEG")
    (theirs / "train/n00000000/train_0.JPEG").touch()
    hashed: list[str] = []
    real = site_folder._digest

    def digest(path: Path) -> str:
        hashed.append(path.name)
        return real(path)

    monkeypatch.setattr(site_folder, "_digest", digest)
    found = take(theirs, tmp_path / "data")
    again = ["train_0.JPEG", "train_1.JPEG", "train_2.JPEG"]
    assert sorted(hashed) == sorted([*again, *(path.name for path in (theirs / "val").glob("*/*"))])
    assert not journal.exists()
    for path in ("train/n00000000/train_0.JPEG", "train/n00000003/train_1.JPEG"):
        assert found.files[path].sha256 == verify.sha256_file(theirs / path)


def test_journal_of_another_folder_is_ignored(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = theirs / "train/n00000000/train_0.JPEG"
    status = " ".join(map(str, verify.status(path)))
    line = f"{'0' * 64} {status} train/n00000000/train_0.JPEG\n"
    (tmp_path / "data/.imagenet.verifying").write_text(f"/elsewhere\n{line}")
    found = take(theirs, tmp_path / "data")
    assert found.files["train/n00000000/train_0.JPEG"].sha256 == verify.sha256_file(path)


def test_images_of_another_folder_are_not_taken_for_those_that_are_there(tmp_path: Path) -> None:
    theirs = image_files.folders(tmp_path / "theirs")
    others = image_files.folders(tmp_path / "others")
    found = take(theirs, tmp_path / "data")
    assert take(theirs, tmp_path / "data").digest == found.digest
    with pytest.raises(DatasetError, match=r"expected the images of .*others, found .*theirs\. Remove"):
        take(others, tmp_path / "data")
    with pytest.raises(DatasetMissing, match="none: expected the files of imagenet"):
        take(tmp_path / "none", tmp_path / "data")


def test_custom_images_are_identified_by_their_digest(tmp_path: Path) -> None:
    theirs = image_files.folders(tmp_path / "site", train=5, val=1, classes=3)
    with pytest.raises(DatasetCorrupt, match=r"found 3 classes, 15 and 3 images.*CUSTOM=1"):
        take(theirs, tmp_path / "data")
    # The digests of the rules belong to other images.
    entry = replace(image_files.official(), digest="0" * 64)
    found = take(theirs, tmp_path / "data", entry, custom=True)
    assert (found.kind, found.name, len(found.files)) == ("custom", "imagenet", 20)
    assert prepare.check(entry, tmp_path / "data/imagenet", None, True) == found
    manifest = tmp_path / "data/imagenet/manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"kind": "official"}))
    with pytest.raises(DatasetCorrupt, match="digest 0000"):
        prepare.check(entry, tmp_path / "data/imagenet", None, False)
    with pytest.raises(DatasetCorrupt, match="2 to 2 classes"):
        take(theirs, tmp_path / "more", image_files.official(classes=2), custom=True)


def test_containers_mount_the_site_folder_at_its_path(theirs: Path, tmp_path: Path) -> None:
    from suite.containers.engines.container import DATA
    from suite.containers.engines.workers import data_mounts

    take(theirs, tmp_path / "data")
    folder = tmp_path / "data/imagenet"
    assert data_mounts(folder) == [
        Mount(folder, DATA),
        *(Mount(theirs / split, str(theirs / split)) for split in ("train", "val")),
    ]
    (tmp_path / "plain").mkdir()
    assert data_mounts(tmp_path / "plain") == [Mount(tmp_path / "plain", DATA)]


# The command


def run(*arguments: str) -> int:
    return cli(["data", *arguments])


def test_command_verifies_and_reports(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, small = catalogue.entry, image_files.official()
    monkeypatch.setattr(catalogue, "entry", lambda name: small if name == "imagenet" else real(name))
    root = ["--workload", "resnet50", "--data-root", str(tmp_path / "data")]
    assert run(*root) == 12
    assert "FROM=path" in capsys.readouterr().err
    assert run(*root, "--custom") == 10
    assert run("--workload", "ncf", "--custom", "--from", str(theirs), "--data-root", str(tmp_path)) == 12
    assert "a dataset of images" in capsys.readouterr().err
    assert run(*root, "--from", str(theirs)) == 0
    assert "terms of access" in (out := capsys.readouterr().out)
    assert "digest" in out
    assert run(*root, "--verify") == 0
    other_content(theirs)
    assert run(*root, "--verify") == 12
    assert "val_1.JPEG" in capsys.readouterr().err


def test_truncated_generated_image_is_named(theirs: Path) -> None:
    name = "train/n00000003/train_1.JPEG"
    hasher = image_folder.hasher(catalogue.entry("imagenet-mini").images)
    whole = hasher(theirs / name, name)
    assert hasher(theirs / name, name) == whole != verify.sha256_file(theirs / name)
    image = Image.open(theirs / name)
    image.save(theirs / "again.png")
    assert image_folder.hasher(catalogue.entry("imagenet").images) is verify.sha256_file
    assert hasher(theirs / "again.png", name) == whole, "the same pixels in other bytes"
    truncated(theirs)
    with pytest.raises(DatasetCorrupt, match=r"train_1\.JPEG: expected a whole image, found image file is"):
        hasher(theirs / name, name)
