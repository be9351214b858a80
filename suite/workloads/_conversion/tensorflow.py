"""TFRecord, as TensorFlow writes it: a ``tf.train.Example`` per record; an index of offsets and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf

from suite.workloads._conversion.conversion import Conversion, StoredImage
from suite.workloads._conversion.source import SourceImage
from suite.workloads.storage import Shard

RAW = b"RAW"  # image/format of pixels in rows, as tf_slim's decoder names it
_FRAME = 8 + 4 + 4  # bytes of a record beside its content: length, checksum of each


class Writer(Conversion):
    """Keys as in the published TFRecords of ImageNet, whose labels count from 1."""

    storage = "tfrecord"

    def write(self, stem: Path, samples: Iterable[SourceImage], shard: Shard, size: int) -> None:
        """See :class:`Conversion`. The index has a line ``offset size`` per record, as DALI reads it."""
        del shard, size
        lines, offset = [], 0
        with tf.io.TFRecordWriter(f"{stem}.tfrecord") as out:
            for sample in samples:
                record = _example(sample).SerializeToString(deterministic=True)
                out.write(record)
                lines.append(f"{offset} {len(record) + _FRAME}\n")
                offset += len(record) + _FRAME
        Path(f"{stem}.tfrecord.idx").write_text("".join(lines), "ascii")

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        """See :class:`Conversion`. A record has no key: its position is that in the file."""
        lines = Path(f"{stem}.tfrecord.idx").read_text("ascii").splitlines()
        # This iterator compares checksums. tf.data would too, but starts threads for each file.
        records = tf.compat.v1.io.tf_record_iterator(f"{stem}.tfrecord")
        offset = 0
        for position, (line, record) in enumerate(zip(lines, records, strict=True), shard.first):
            if line != f"{offset} {len(record) + _FRAME}":
                raise OSError(
                    f"{stem.name}.tfrecord.idx: expected record {position} at {offset}, found {line!r}"
                )
            offset += len(record) + _FRAME
            features = tf.train.Example.FromString(record).features.feature
            label = features["image/class/label"].int64_list.value[0] - 1
            yield StoredImage(position, label, features["image/encoded"].bytes_list.value[0])


def _example(sample: SourceImage) -> tf.train.Example:
    def text(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[sample.label + 1]))
    features = {
        "image/encoded": text(sample.content),
        "image/class/label": label,
        "image/filename": text(sample.name.rsplit("/", 1)[-1].encode()),
    }
    if sample.raw is not None:
        side = tf.train.Feature(int64_list=tf.train.Int64List(value=[sample.raw]))
        features |= {"image/format": text(RAW), "image/height": side, "image/width": side}
    return tf.train.Example(features=tf.train.Features(feature=features))
