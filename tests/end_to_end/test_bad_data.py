"""Damaged datasets of every workload: the run ends with exit code 12, names the file and has no score.

The harness detects files that changed since their verification before it starts a worker. The worker reports
files that it cannot read; the unit tests of the datasets check the messages of each reader.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.cli.run import main
from suite.datasets import catalogue, prepare
from suite.datasets.verify import sha256_file, status
from suite.workloads import names, specification
from tests.end_to_end.command import run

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from the name of a mini dataset to a copy of it that is made once."""
    root = tmp_path_factory.mktemp("data")
    return lambda name: prepare.prepare(name, root).path


@pytest.fixture
def damaged(originals: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[[str, Damage], Path]]:
    """Makes a damaged copy of a mini dataset that is marked as verified; returns the data root."""
    root = tmp_path / "data"

    def make(name: str, damage: Damage) -> Path:
        shutil.copytree(originals(name), root / name, copy_function=os.link)
        stamp = root / name / prepare.STAMP
        content = json.loads(stamp.read_text())
        for file in content["files"]:
            content["files"][file] = status(
                root / name / file
            )  # a new hard link changes the times of the file
        stamp.unlink()
        stamp.write_text(json.dumps(content))
        damage(root / name)
        return root

    yield make
    shutil.rmtree(root, ignore_errors=True)


def changed(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Replaces the content of one file without changing the original, to which it is a hard link."""

    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).write_bytes(change(content))

    return damage


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def out_of_vocabulary(content: bytes) -> bytes:
    at = content.rindex(b" <unk> ") if b" <unk> " in content else content.rindex(b" ", 0, -20)
    return content[: at + 1] + b"zzzzz" + content[at + 6 :]


def first_image(folder: Path) -> str:
    return min(path.relative_to(folder).as_posix() for path in folder.glob("train*/**/*.[jJ]*"))


def truncated_image(folder: Path) -> None:
    changed(first_image(folder), half)(folder)


def without_a_class(folder: Path) -> None:
    shutil.rmtree(min((folder / "val").iterdir()))


def box_outside(content: bytes) -> bytes:
    parsed = json.loads(content)
    parsed["annotations"][7]["bbox"][2] = 999
    return json.dumps(parsed, separators=(",", ":"), sort_keys=True).encode()


TRAIN, VAL = (f"annotations/instances_{split}2017.json" for split in ("train", "val"))
CASES = {
    "truncated JPEG": (
        "resnet50",
        truncated_image,
        r"imagenet-mini/train/n9.*JPEG: expected a whole image",
    ),
    "wrong class count": ("resnet50", without_a_class, "val/n9.*JPEG: expected a file, found no such file"),
    "empty split": ("resnet50", changed("val.txt", lambda _: b""), "val.txt: expected .* bytes, found 0"),
    "corrupt record": (
        "resnet50_cifar10",
        changed("cifar-10-batches-bin/data_batch_2.bin", lambda old: b"\xff" + old[1:]),
        r"data_batch_2\.bin: expected sha256",
    ),
    "record cut off": (
        "inception_bn_small",
        changed("cifar-10-batches-bin/test_batch.bin", lambda old: old[:-10]),
        r"test_batch\.bin: expected \d+ bytes, found",
    ),
    "box outside its image": (
        "faster_rcnn",
        changed(TRAIN, box_outside),
        r"instances_train2017\.json: expected",
    ),
    "annotations cut off": (
        "faster_rcnn",
        changed(VAL, half),
        r"instances_val2017\.json: expected \d+ bytes",
    ),
    "image missing": (
        "faster_rcnn",
        lambda folder: (folder / first_image(folder)).unlink(),
        r"train2017/0+1\.jpg: expected a file, found no such file",
    ),
    "out of the vocabulary": (
        "lstm_ptb",
        changed("ptb.test.txt", out_of_vocabulary),
        r"ptb\.test\.txt: expected sha256",
    ),
    "another letter": ("word2vec", changed("text8", lambda old: b"A" + old[1:]), "text8: expected sha256"),
    "another vocabulary": (
        "gnmt",
        changed("vocab.bpe.32000", lambda old: old.replace(b"a", b"b", 1)),
        r"vocab\.bpe\.32000: expected sha256",
    ),
    "not a rating": (
        "ncf",
        changed("ratings.dat", lambda old: old.replace(b"::", b"; ", 1)),
        r"ratings\.dat: expected sha256",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_run_refuses_dataset_changed_after_verification(
    damaged: Callable[[str, Damage], Path], case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workload, damage, options = CASES[case]
    root = damaged(specification(workload).DATASETS["mini"], damage)
    path_options = [f"{name}={tmp_path / name}" for name in ("results_dir", "cache_dir")]
    code = main(
        [f"workload={workload}", "framework=pytorch", "scale=mini", f"data_root={root}", *path_options]
    )
    output = capfd.readouterr().err
    assert code == 12, output
    assert re.search(options, output), output
    assert "next run generates it again" in output
    assert "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_run_refuses_dataset_with_another_digest(
    damaged: Callable[[str, Damage], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The files equal their manifest, but the dataset's digest is not that of the rules."""

    def replace_ratings(folder: Path) -> None:
        changed("ratings.dat", lambda old: old.replace(b"::5::", b"::4::"))(folder)
        manifest = json.loads((folder / prepare.MANIFEST).read_text())
        sums = {"ratings.dat": sha256_file(folder / "ratings.dat")}
        manifest["files"]["ratings.dat"]["sha256"] = sums["ratings.dat"]
        (folder / prepare.MANIFEST).unlink()
        (folder / prepare.MANIFEST).write_text(json.dumps(manifest | {"digest": catalogue.digest_of(sums)}))

    root = damaged("ml-1m-mini", replace_ratings)
    options = ["workload=ncf", "framework=pytorch", "scale=mini", f"data_root={root}"]
    assert main([*options, f"results_dir={tmp_path / 'results'}"]) == 12
    expected = catalogue.entry("ml-1m-mini").digest
    assert f"manifest.json: expected digest {expected} (rules), found " in capfd.readouterr().err


def test_every_mini_dataset_has_a_case() -> None:
    """Workloads that read the same dataset share a case."""
    datasets = {specification(workload).DATASETS["mini"] for workload in names()}
    assert {specification(workload).DATASETS["mini"] for workload, _, _ in CASES.values()} == datasets


def test_unreadable_image_is_named_and_run_has_no_score(
    damaged: Callable[[str, Damage], Path], tmp_path: Path
) -> None:
    """The images are damaged, and the record of the verification has their new size and times."""

    def damage_images(folder: Path) -> None:
        stamp = folder / prepare.STAMP
        content = json.loads(stamp.read_text())
        for path in sorted((folder / "train2017").iterdir())[::3]:
            name = path.relative_to(folder).as_posix()
            changed(name, half)(folder)
            content["files"][name] = status(path)
        stamp.write_text(json.dumps(content))

    root = damaged("coco-mini", damage_images)
    results = tmp_path / "results"
    done = run(results, f"data_root={root}", "scale=mini", workload="faster_rcnn")
    assert done.returncode == 12, done.stderr
    assert "BadData: train2017/000000000" in done.stderr
    assert ".jpg: expected a whole image, found" in done.stderr
    (partial,) = (path for path in results.iterdir() if path.is_dir() and not path.name.endswith(".debug"))
    assert partial.name.endswith(".partial")
    *_, abort, footer = (json.loads(line) for line in (partial / "run.jsonl").read_text().splitlines())
    assert (abort["data"]["code"], footer["data"]["claims"]) == ("dataset", None)
    assert not check_result(partial).accepted
