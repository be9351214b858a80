"""The steps of a conversion, with a plain storage format instead of that of a framework."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from suite.common.decoder import decode
from suite.contract import BadData, ConversionJob, ConversionKey
from suite.worker.conversion import step_columns
from suite.workloads._conversion.conversion import Conversion, FinishedShard, StoredImage
from suite.workloads._conversion.datum import decoded, raw
from suite.workloads._conversion.source import SourceImage, encoded_again, stored_digest
from suite.workloads.storage import Encoding, Shard, read_list
from tests.fixtures import image_files

TRAIN, VAL = 22, 6  # of each of four classes: 88 + 24 images, one image per shard


class Plain(Conversion):
    """One record per image: a line of position, label and size, then the file."""

    storage = "recordio"

    def write(self, stem: Path, samples: Iterable[SourceImage], shard: Shard, size: int) -> None:
        del size
        content = b"".join(
            b"%d %d %d\n" % (sample.position, sample.label, len(sample.content)) + sample.content
            for sample in samples
        )
        Path(f"{stem}.rec").write_bytes(content)
        Path(f"{stem}.idx").write_text(f"{shard.first}\t0\n")

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        rest = Path(f"{stem}.rec").read_bytes()
        for _ in range(shard.count):
            head, _, rest = rest.partition(b"\n")
            position, label, size = map(int, head.split())
            yield StoredImage(position, label, rest[:size])
            rest = rest[size:]


class Lying(Plain):
    """Reads a label that was not written, in the second shard."""

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        for record in super().read(stem, shard):
            yield record._replace(label=record.label + 1) if shard.number == 1 else record


class Forgetful(Plain):
    """Reads no record of the second shard."""

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        return iter(()) if shard.number == 1 else super().read(stem, shard)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images that no test changes."""
    return image_files.with_lists(image_files.folders(tmp_path_factory.mktemp("images"), TRAIN, VAL))


def job(folder: Path, scratch: Path, batch: int = 1, threads: int = 3) -> ConversionJob:
    key = ConversionKey("resnet50", "pytorch", "lmdb", batch, "mini", "warm")
    return ConversionJob(key, threads, 0, str(folder), str(scratch))


def every_step(pair: Conversion) -> None:
    for step in range(110):
        pair.step(step)


def test_repeat_writes_its_shards_without_threads_between_steps(whole: Path, tmp_path: Path) -> None:
    pair = Plain(job(whole, tmp_path))
    threads = set(threading.enumerate())
    for step in range(10):
        pair.step(step)
    assert len(list(pair.out.glob("*.rec"))) == 10  # none of the window before it opens
    for step in range(10, 110):
        pair.step(step)
    assert set(threading.enumerate()) == threads
    assert len(pair.collect()) == 110
    first = step_columns(pair)
    assert len(set(first["batches"])) == len(set(first["outputs"])) == 110
    pair.reset()
    assert pair.collect() == []
    assert list(pair.out.iterdir()) == []
    for step in range(110):
        pair.step(step)
    assert step_columns(pair) == first
    pair.close()
    assert not pair.out.exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("convert")]


@pytest.mark.parametrize(("encoding", "least"), [("raw-24", 3 * 24 * 24), ("jpeg-24", 300)])
def test_images_are_resized_and_encoded_again(encoding: str, least: int, whole: Path, tmp_path: Path) -> None:
    work = job(whole, tmp_path)
    pair = Plain(replace(work, key=replace(work.key, encoding=encoding)))
    shard = pair.shards[5]
    done = pair.convert(shard)
    (record,) = pair.read(pair.out / shard.name("recordio"), shard)
    assert len(record.content) >= least
    name, label = read_list(whole, "train")[5][1], record.label
    source = SourceImage(5, label, name, (whole / name).read_bytes())
    wanted = decode(source.content, name).resize((24, 24), Image.Resampling.BILINEAR)
    if encoding.startswith("raw"):
        assert record.content == wanted.tobytes()
        value = raw(label, record.content, 24)
        assert decoded(value) == (label, record.content)
        assert value.count(wanted.tobytes()[2::3]) == 1  # the blue plane
    else:
        apart = np.asarray(decode(record.content, name), int) - np.asarray(wanted, int)
        assert np.abs(apart).mean() < 8
    again = encoded_again(source, Encoding(encoding.split("-", maxsplit=1)[0], 24))
    assert done.pixels == sha256(bytes.fromhex(stored_digest(again))).hexdigest()
    pair.close()


class Counting(Plain):
    """Notes the shards that it converts."""

    made: ClassVar[list[int]] = []

    def convert(self, shard: Shard) -> FinishedShard:
        self.made.append(shard.number)
        return super().convert(shard)


def test_soak_does_not_make_pending_shards_again(whole: Path, tmp_path: Path) -> None:
    """Two threads would write the same files."""
    Counting.made.clear()
    pair = Counting(job(whole, tmp_path))
    pair.step(0)  # which compiles a benchmark
    for step in range(10):
        pair.step(step)
    pair.close()
    assert sorted(Counting.made) == [0, *range(10)]


def test_source_is_verified_before_it_is_encoded_again(tmp_path: Path) -> None:
    folder = image_files.with_lists(image_files.folders(tmp_path / "images", TRAIN, VAL))
    first, second = (folder / read_list(folder, "train")[at][1] for at in (0, 1))
    first.write_bytes(second.read_bytes())
    work = job(folder, tmp_path)
    pair = Plain(replace(work, key=replace(work.key, encoding="raw-24")))
    with pytest.raises(BadData, match="expected the image with the digest"):
        pair.convert(pair.shards[0])
    pair.close()


def test_reset_ends_unfinished_shards(whole: Path, tmp_path: Path) -> None:
    pair = Plain(job(whole, tmp_path))
    pair.step(10)  # a hundred shards are handed to the threads
    pair.reset()
    assert list(pair.out.iterdir()) == []
    pair.close()


@pytest.mark.parametrize("kind", [Lying, Forgetful])
def test_shard_that_reads_back_differently_is_not_finished(
    kind: type[Plain], whole: Path, tmp_path: Path
) -> None:
    pair = kind(job(whole, tmp_path))
    pair.step(0)
    with pytest.raises(OSError, match=r"train-00001-of-00088: record 0: expected what was written"):
        pair.step(1)
    pair.close()


def test_bad_image_ends_the_steps(tmp_path: Path) -> None:
    folder = image_files.with_lists(image_files.folders(tmp_path / "images", TRAIN, VAL))
    name = (folder / "train.txt").read_text().splitlines()[40][66:]
    (folder / name).write_bytes((folder / name).read_bytes()[:-300])
    pair = Plain(job(folder, tmp_path))
    with pytest.raises(BadData, match=f"{name}: expected a whole image"):
        every_step(pair)
    pair.close()
    assert len(list(pair.out.parent.iterdir())) == 1  # the images: nothing is left of the shards


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"train.txt: expected images, found an empty list"),
        (f"{'0' * 64} train/a/b.JPEG\n", r"train.txt: line 1: expected a digest and train/class/file"),
        (f"{'0' * 64}  train/n00000000/b.JPEG\n", "expected a class that train has too"),
    ],
)
def test_invalid_list_is_named(line: str, message: str, tmp_path: Path) -> None:
    folder = image_files.with_lists(image_files.folders(tmp_path / "images", 1, 1))
    (folder / "train.txt").write_text(line)
    with pytest.raises(BadData, match=message):
        Plain(job(folder, tmp_path))


def test_missing_listed_image_is_named(tmp_path: Path) -> None:
    folder = image_files.with_lists(image_files.folders(tmp_path / "images", TRAIN, VAL))
    next(folder.glob("train/n00000000/*")).unlink()
    pair = Plain(job(folder, tmp_path))
    with pytest.raises(BadData, match=r"train/n00000000/train_.*: expected an image, found no such file"):
        every_step(pair)
    pair.close()


def test_framework_is_set_up_for_the_thread_that_writes(whole: Path, tmp_path: Path) -> None:
    found = job(whole, tmp_path).framework_job
    assert (found.key.framework, found.key.precision, found.device, found.threads) == (
        "pytorch", "fp32", "cpu", 3,
    )  # fmt: skip
