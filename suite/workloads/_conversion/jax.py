"""ArrayRecord, which Grain reads: a ``tf.train.Example`` per record, as TensorFlow Datasets writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from suite.workloads._classification.tensorflow_shard import image_and_label
from suite.workloads._conversion.conversion import Conversion, StoredImage
from suite.workloads._conversion.datum import varint
from suite.workloads._conversion.source import SourceImage
from suite.workloads.storage import Shard

# One record per chunk can be read alone; images are compressed already.
_OPTIONS = "group_size:1,uncompressed"
_BYTES, _INTEGERS = 1, 3  # fields of tf.train.Feature


class Writer(Conversion):
    """Keys as in the published TFRecords of ImageNet, whose labels count from 1."""

    storage = "arrayrecord"

    def write(self, stem: Path, samples: Iterable[SourceImage], shard: Shard, size: int) -> None:
        """See :class:`Conversion`."""
        del shard, size
        with closing(ArrayRecordWriter(f"{stem}.array_record", _OPTIONS)) as out:
            for sample in samples:
                out.write(_example(sample))

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        """See :class:`Conversion`. A record has no key: its position is that in the file."""
        with closing(ArrayRecordReader(f"{stem}.array_record")) as written:
            for position, record in enumerate(written.read_all(), shard.first):
                image, label = image_and_label(record)
                yield StoredImage(position, label - 1, image)


def _example(sample: SourceImage) -> bytes:
    """A ``tf.train.Example`` with the features that a TFRecord of the same image has (example.proto)."""
    features = {
        "image/class/label": _field(_INTEGERS, _field(1, varint(sample.label + 1))),
        "image/encoded": _field(_BYTES, _field(1, sample.content)),
        "image/filename": _field(_BYTES, _field(1, sample.name.rsplit("/", 1)[-1].encode())),
    }
    if sample.raw is not None:
        side = _field(_INTEGERS, _field(1, varint(sample.raw)))
        features |= {
            "image/format": _field(_BYTES, _field(1, b"RAW")), "image/height": side, "image/width": side,
        }  # fmt: skip
    entries = (_field(1, name.encode()) + _field(2, feature) for name, feature in features.items())
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes or another message."""
    return varint(number << 3 | 2) + varint(len(content)) + content
