"""Storage formats are read at any position; defects are named by file and record."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.contract import BadData
from suite.contract.traits import storage_formats as known_formats
from suite.workloads._classification import samples
from suite.workloads._classification.protobuf import fields, varints
from suite.workloads._classification.sources import validation_labels
from suite.workloads._classification.tensorflow_shard import masked
from tests.fixtures import image_files, storage_formats

Damage = Callable[[Path], object]

LIBRARIES = {"lmdb": "lmdb", "arrayrecord": "array_record"}  # of the formats that need one
MISSING = {name: library for name, library in LIBRARIES.items() if importlib.util.find_spec(library) is None}
FORMS = [
    pytest.param(name, marks=pytest.mark.skipif(name in MISSING, reason=f"no {MISSING.get(name)} here"))
    for name in storage_formats.STORAGE_FORMATS
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_files.with_lists(image_files.folders(tmp_path_factory.mktemp("files")))


@pytest.mark.parametrize("storage_format", FORMS)
def test_converted_dataset_has_the_same_images_in_the_same_order(
    files: Path, tmp_path: Path, storage_format: str
) -> None:
    folder = storage_formats.convert(files, tmp_path / storage_format, storage_format)
    found, wanted = samples.open_samples(folder, 4), samples.open_samples(files, 4)
    for split, count in (("train", 12), ("val", 8)):
        assert found.labels[split].tolist() == wanted.labels[split].tolist()
        for at in reversed(range(count)):
            assert found.content(split, at) == wanted.content(split, at)
            assert found.file(split, at) is None
    assert validation_labels(folder, 4).tolist() == wanted.labels["val"].tolist()
    name_of_split = "validation" if storage_format == "tfrecord" else "val"
    assert found.name("val", 6) == f"{name_of_split}-00001-of-00002: record 1 ({wanted.name('val', 6)})"


def test_image_with_the_magic_number_is_reassembled(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    image_files.folders(folder)
    path = folder / "train/n00000000/train_0.JPEG"
    magic = storage_formats.MAGIC
    path.write_bytes(magic + b"1234" + magic + magic + b"12" + magic + path.read_bytes() + magic)
    image_files.with_lists(folder)
    found = samples.open_samples(storage_formats.convert(folder, tmp_path / "rec", "recordio"), 4)
    assert found.content("train", 0) == path.read_bytes()
    assert found.content("train", 1) == (folder / "train/n00000000/train_1.JPEG").read_bytes()


# Defects


def edit(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def edit_storage_json(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        content_json = json.loads((folder / "storage.json").read_text())
        (folder / "storage.json").write_text(json.dumps(content_json | changes))

    return damage


def at(position: int, bits: int) -> Callable[[bytes], bytes]:
    """The content with some bits of the byte at ``position`` inverted."""
    return lambda content: content[:position] + bytes([content[position] ^ bits]) + content[position + 1 :]


REC, TFR = "train-00000-of-00003.rec", "train-00000-of-00003.tfrecord"
IDX = "train-00000-of-00003.idx"
BAD: dict[str, tuple[str, Damage, str]] = {
    "no shard": ("recordio", lambda f: (f / REC).unlink(), f"{REC}: expected a file of records, found none"),
    "magic": ("recordio", edit(REC, at(0, 1)), f"{REC}: record 0: expected the magic number"),
    "part": ("recordio", edit(REC, at(7, 0x40)), f"{REC}: record 0: expected the magic number"),
    "cut": ("recordio", edit(REC, lambda c: c[:200]), f"{REC}: record 0: expected "),
    "empty": (
        "recordio",
        edit(REC, lambda c: b""),
        f"{REC}: record 0: expected 8 bytes of a record's header",
    ),
    "label": ("recordio", edit(REC, at(14, 0x80)), f"{REC}: record 0: expected the label 0, found "),
    "labels": ("recordio", edit(REC, at(8, 2)), "expected the label 0, found 0 and 2 further ones"),
    "no index": ("recordio", lambda f: (f / IDX).unlink(), f"{IDX}: expected an index, found none"),
    "keys": ("recordio", edit(IDX, at(0, 7)), f"{IDX}: line 1: expected the key 0"),
    "header line": ("recordio", edit(IDX, lambda c: b"key\toffset\n"), f"{IDX}: expected lines of a key"),
    "short": (
        "recordio",
        edit(IDX, lambda c: c[: c.index(b"\n4") + 1]),
        f"{IDX}: expected 5 records, found 4",
    ),
    "no tfrecord": ("tfrecord", lambda f: (f / TFR).unlink(), f"{TFR}: expected a file of records"),
    "length": ("tfrecord", edit(TFR, at(0, 9)), f"{TFR}: record 0: expected the length"),
    "end": ("tfrecord", edit(TFR, lambda c: c[:300]), f"{TFR}: record 0: expected "),
    "sizes": (
        "tfrecord",
        edit(f"{TFR}.idx", lambda c: b"0 x\n"),
        f"{TFR}.idx: expected lines of an offset and a size",
    ),
    "rows": ("tfrecord", edit(f"{TFR}.idx", lambda c: b"0 900\n"), "expected 5 records, found 1"),
    "no storage format": (
        "recordio",
        edit("storage.json", lambda c: b"{"),
        "storage.json: expected a storage format and its shards",
    ),
    "storage": (
        "recordio",
        edit_storage_json(storage="zip"),
        f"storage.json: expected one of {', '.join(known_formats())}, found 'zip'",
    ),
    "counts": (
        "recordio",
        edit_storage_json(shards={"train": [5, 5], "val": [8]}),
        "expected 12 images as in train.txt",
    ),
    "strange": (
        "recordio",
        edit_storage_json(shards={"train": [-1], "val": [8]}),
        "storage.json: train: expected numbers of images",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_records_are_named(files: Path, tmp_path: Path, case: str) -> None:
    kind, damage, expected_text = BAD[case]
    folder = storage_formats.convert(files, tmp_path / "made", kind)
    damage(folder)
    with pytest.raises(BadData) as error:
        samples.open_samples(folder, 4).content("train", 0)
    assert expected_text in str(error.value)


@pytest.mark.skipif("lmdb" in MISSING, reason="no lmdb here")
def test_bad_databases_are_named(files: Path, tmp_path: Path) -> None:
    folder = storage_formats.convert(files, tmp_path / "made", "lmdb")
    name = "train-00000-of-00003.lmdb"
    (folder / name / "data.mdb").write_bytes(b"nothing")
    with pytest.raises(BadData, match=f"{name}: expected a readable database, found "):
        samples.open_samples(folder, 4).content("train", 0)
    other = storage_formats.convert(files, tmp_path / "other", "lmdb")
    (other / name).rename(folder / "moved")
    (other / "train-00001-of-00003.lmdb").rename(other / name)
    with pytest.raises(BadData, match=f"{name}: record 0: expected the key 00000000, found none"):
        samples.open_samples(other, 4).content("train", 0)


def test_example_without_image_is_named(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    storage_formats.tfrecord(path, [(0, 0, "a", b"")])
    shard = samples.shard_reader("tfrecord")(tmp_path, path.name, 0, 1)
    with pytest.raises(BadData, match=r"record 0: expected a tf\.train\.Example, .* it has no image/encoded"):
        shard.read(0, 0)
    storage_formats.tfrecord(path, [(0, 200, "a", b"image")])
    shard = samples.shard_reader("tfrecord")(tmp_path, path.name, 0, 1)
    assert shard.read(0, 200) == b"image"
    with pytest.raises(BadData, match="record 0: expected the label 200, found 201"):
        shard.read(0, 199)


# Checksums and messages


def test_checksum_of_a_length_equals_that_of_the_standard() -> None:
    # RFC 3720, appendix B.4, in the byte order of the text; masked as in tsl/lib/hash/crc32c.h.
    checksum = 0x8A9136AA
    assert masked(bytes(32)) == ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32


def test_messages_are_read_field_by_field() -> None:
    message = b"\x08\x96\x01" + b"\x12\x02hi" + b"\x1d\x01\x02\x03\x04" + b"\x21" + bytes(8)
    found = [(number, value if isinstance(value, int) else bytes(value)) for number, value in fields(message)]
    assert found == [(1, 150), (2, b"hi"), (3, 0x04030201), (4, 0)]
    assert varints(memoryview(b"\x01\x96\x01")) == [1, 150]
    for broken in (b"\x08", b"\x12\x05hi", b"\x0b", b"\x08" + b"\xff" * 11):
        with pytest.raises(ValueError, match="expected"):
            list(fields(broken))
