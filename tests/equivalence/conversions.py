"""Converts a folder of images in a framework's interpreter and reads the result with the users' readers.

Prints one JSON object, which ``tests/equivalence/test_conversions.py`` checks.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from suite.contract import BadData, ConversionJob, ConversionKey
from suite.contract.traits import traits_of
from suite.workloads._conversion.completion import complete
from suite.workloads._conversion.conversion import SHARDS

Row = tuple[int, int, str]  # position, label from 0, SHA-256 of the file
BATCH = 5


def main(framework: str, folder: Path, scratch: Path) -> dict[str, Any]:
    """The results of two conversions of ``folder`` below ``scratch``; the second is interrupted."""
    storage = traits_of(framework).storage
    key = ConversionKey("resnet50", framework, storage, BATCH, "mini", "warm")
    job = ConversionJob(key, 2, 0, str(folder), str(scratch / "first"))
    pairs = import_module(f"suite.workloads._conversion.{framework}")
    first = run(pairs, job)
    again = replace(job, scratch_dir=str(scratch / "second"))
    (scratch / "second").mkdir()
    cut = complete(pairs.Writer(again), scratch / "second")
    kept = [next(cut)[0].name(storage) for _ in range(2)]
    cut.close()
    spoiled = scratch / "second" / SHARDS / kept_file(scratch / "second", kept[0])
    spoiled.write_bytes(spoiled.read_bytes()[:-9])
    second = run(pairs, again)
    return {
        "storage": storage,
        "first": first,
        "second": second,
        "kept": kept,
        "read": {name: list(rows) for name, rows in READERS[framework](scratch / "first" / SHARDS)},
        "bad": bad_images(pairs, job, folder, scratch / "third"),
    }


def kept_file(scratch: Path, stem: str) -> str:
    """The data file of a shard, as a path within the folder of shards."""
    found = sorted((scratch / SHARDS).glob(f"{stem}*"))[-1]
    return found.name if found.is_file() else f"{found.name}/data.mdb"


def run(pairs: Any, job: Any) -> dict[str, Any]:
    """The note of every shard by name, and whether an earlier attempt finished it."""
    scratch = Path(job.scratch_dir)
    scratch.mkdir(parents=True, exist_ok=True)
    pair = pairs.Writer(job)
    found = {s.name(pair.storage): {**asdict(done), "before": b} for s, done, b in complete(pair, scratch)}
    return dict(sorted(found.items()))


def bad_images(pairs: Any, job: Any, folder: Path, scratch: Path) -> list[str]:
    """The messages for an image that is cut off, replaced by another image, and missing."""
    path = next(folder.glob("val/*/*"))
    whole, other = path.read_bytes(), next(folder.glob("train/*/*")).read_bytes()
    messages = []
    for content in (whole[: len(whole) // 2], other, None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        (scratch := scratch.with_name(scratch.name + "x")).mkdir()
        pair = pairs.Writer(replace(job, scratch_dir=str(scratch)))
        try:
            list(complete(pair, scratch))
            messages.append("nothing")
        except BadData as error:
            messages.append(str(error))
        path.write_bytes(whole)
    return messages


def _row(position: int, label: int, content: bytes) -> Row:
    return position, label, hashlib.sha256(content).hexdigest()


def recordio(folder: Path) -> Iterator[tuple[str, Iterator[Row]]]:
    """Records read by MXNet's reader, in the order of the index."""
    from mxnet import recordio as reader

    def rows(path: Path) -> Iterator[Row]:
        records = reader.MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "r")
        for key in records.keys:
            head, content = reader.unpack(records.read_idx(key))
            assert (head.flag, head.id, head.id2) == (0, key, 0)
            yield _row(key, int(head.label), content)

    for path in sorted(folder.glob("*.rec")):
        yield path.stem, rows(path)


def tfrecord(folder: Path) -> Iterator[tuple[str, Iterator[Row]]]:
    """Records read by tf.data, compared with those that the index locates."""
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
    }

    def rows(path: Path) -> Iterator[Row]:
        raw = path.read_bytes()
        index = [tuple(map(int, line.split())) for line in Path(f"{path}.idx").read_text().splitlines()]
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        assert [raw[at + 12 : at + size - 4] for at, size in index] == records
        for position, record in enumerate(records):
            found = tf.io.parse_single_example(record, features)
            assert found["image/filename"].numpy().endswith(b".JPEG")
            yield _row(position, int(found["image/class/label"]) - 1, found["image/encoded"].numpy())

    for path in sorted(folder.glob("*.tfrecord")):
        yield path.stem, rows(path)


def lmdb(folder: Path) -> Iterator[tuple[str, Iterator[Row]]]:
    """Records read by lmdb."""
    import lmdb as reader

    from suite.workloads._conversion.datum import decoded

    def rows(path: Path) -> Iterator[Row]:
        with reader.open(str(path), readonly=True, lock=False) as database, database.begin() as transaction:
            for key, value in transaction.cursor():
                assert len(key) == 8
                yield _row(int(key), *decoded(value))

    for path in sorted(folder.glob("*.lmdb")):
        yield path.stem, rows(path)


# tf.train.Example after tensorflow/core/example/{example,feature}.proto; a map is a list of entries.
_EXAMPLE = """name: "example.proto" package: "e"
message_type { name: "Bytes" field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED } }
message_type { name: "Ints" field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
message_type { name: "Feature"
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".e.Bytes" label: LABEL_OPTIONAL }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".e.Ints" label: LABEL_OPTIONAL } }
message_type { name: "Entry"
  field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".e.Feature" label: LABEL_OPTIONAL } }
message_type { name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE type_name: ".e.Entry" label: LABEL_REPEATED } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".e.Features" label: LABEL_OPTIONAL } }
"""


def arrayrecord(folder: Path) -> Iterator[tuple[str, Iterator[Row]]]:
    """Records read by Grain, decoded by Google's library for protocol buffers."""
    import grain
    from google.protobuf import descriptor_pb2, message_factory, text_format

    definition = text_format.Parse(_EXAMPLE, descriptor_pb2.FileDescriptorProto())
    example = message_factory.GetMessages([definition])["e.Example"]

    def rows(path: Path) -> Iterator[Row]:
        source = grain.sources.ArrayRecordDataSource(str(path))
        for position in range(len(source)):
            found = {
                entry.key: entry.value for entry in example.FromString(source[position]).features.feature
            }
            assert found["image/filename"].bytes_list.value[0].endswith(b".JPEG")
            label = found["image/class/label"].int64_list.value[0] - 1
            yield _row(position, label, found["image/encoded"].bytes_list.value[0])

    for path in sorted(folder.glob("*.array_record")):
        yield path.stem, rows(path)


READERS = {"mxnet": recordio, "tensorflow": tfrecord, "pytorch": lmdb, "jax": arrayrecord}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))) + "\n")
