"""Each framework's storage format of a folder of images: the bytes of the files, in their order."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from suite.contract.traits import storage_formats
from suite.workloads.storage import layout
from tests.equivalence.conversions import BATCH
from tests.equivalence.interpreters import interpreter, run
from tests.fixtures import image_files

TRAIN, VAL = 8, 3  # images of each of the four classes


def converted(framework: str, root: Path) -> tuple[Path, dict[str, Any]]:
    """A folder of images, and the report of its conversion in ``framework``."""
    folder = image_files.with_lists(image_files.folders(root / "images", TRAIN, VAL))
    (root / "scratch").mkdir()
    if framework == "pytorch" and not _has_lmdb(framework):
        pytest.skip("the environment of pytorch has no lmdb")
    done = run(framework, "tests.equivalence.conversions", framework, str(folder), str(root / "scratch"))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def _has_lmdb(framework: str) -> bool:
    folder = interpreter(framework).parent.parent / "lib"
    return any(folder.glob("python3*/site-packages/lmdb"))


def rows(folder: Path, split: str) -> list[list[Any]]:
    """Position, label from 0 and SHA-256 of every image in the list."""
    lines = (folder / f"{split}.txt").read_text().splitlines()
    return [[at, int(line.split("/")[1][1:]), line[:64]] for at, line in enumerate(lines)]


@pytest.mark.parametrize("framework", ["mxnet", "tensorflow", "pytorch", "jax"])
def test_conversion_stores_images_and_continues_after_interruption(framework: str, tmp_path: Path) -> None:
    folder, report = converted(framework, tmp_path)
    assert storage_formats()[report["storage"]] == framework
    shards = layout({"train": 4 * TRAIN, "val": 4 * VAL}, BATCH)
    names = [shard.name(report["storage"]) for shard in shards]
    assert sorted(names) == sorted(report["first"]) == sorted(report["second"]) == sorted(report["read"])

    for shard, name in zip(shards, names, strict=True):
        expected = rows(folder, shard.split)[shard.first : shard.first + shard.count]
        if framework in ("tensorflow", "jax"):  # records have no keys: positions are those within the file
            expected = [[at, *row[1:]] for at, row in enumerate(expected)]
        assert report["read"][name] == expected
        made = report["first"][name]
        lines = (folder / f"{shard.split}.txt").read_text().splitlines()[shard.first :][: shard.count]
        sizes = [(folder / line[66:]).stat().st_size for line in lines]
        assert (made["images"], made["bytes_in"]) == (shard.count, sum(sizes))
        files = [tmp_path / "scratch" / "first" / "shards" / file for file in shard.files(report["storage"])]
        assert made["bytes_out"] == sum(file.stat().st_size for file in files)
        assert made["written"] == _digest(files, shard.files(report["storage"]))

    # Interrupted after two shards, one of which was damaged later: it and the missing shards are made again.
    damaged, intact = report["kept"]
    assert report["second"][intact]["before"]
    assert not report["second"][damaged]["before"]
    second = {name: {**row, "before": False} for name, row in report["second"].items()}
    assert second == report["first"]

    truncated, other, missing = report["bad"]
    for text, expectation in (
        (truncated, "a whole image"),
        (other, "the image with the digest"),
        (missing, "an image"),
    ):
        assert text.startswith("val/n0000000")
        assert f"expected {expectation}" in text


def _digest(files: list[Path], names: tuple[str, ...]) -> str:
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n"
        for file, name in zip(files, names, strict=True)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
