"""Reads single records of TensorFlow's TFRecord with ``tf.train.Example``.

A record is its length (8 bytes), the length's checksum, the content, and the content's checksum; checksums
are masked CRC-32C (``tsl/lib/hash/crc32c.h``). The index has a line ``offset size`` for each record, as
DALI's ``tfrecord2idx`` writes it.

The content's checksum is not compared: to compute it in Python takes longer than the rest of reading an
image, and the shards were verified by their digests before.
"""

from __future__ import annotations

import struct
from pathlib import Path

from suite.contract import BadData
from suite.workloads._classification.protobuf import fields, varints

IMAGE, LABEL = "image/encoded", "image/class/label"
_LENGTH, _SUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD = _LENGTH.size + _SUM.size
_POLYNOMIAL = 0x82F63B78  # of CRC-32C (Castagnoli; RFC 3720, appendix B.4), with its bits reversed


class Shard:
    """See :class:`suite.workloads._classification.samples.Shard`."""

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        del first
        self._path, self._name = folder / f"{name}.tfrecord", f"{name}.tfrecord"
        self._rows = _index(folder / f"{name}.tfrecord.idx", count)

    def read(self, row: int, label: int) -> bytes:
        """See :class:`suite.workloads._classification.samples.Shard`."""
        where = f"{self._name}: record {row}"
        offset, size = self._rows[row]
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                record = file.read(size)
        except FileNotFoundError:
            raise BadData(f"{self._name}: expected a file of records, found none; convert again") from None
        return image_of(_content(record, size, where), label, where)


def _content(record: bytes, size: int, where: str) -> bytes:
    if len(record) < size or size < _HEAD + _SUM.size:
        raise BadData(f"{where}: expected {size} bytes, found {len(record)} to the end of the file")
    (length,), (checksum,) = _LENGTH.unpack_from(record), _SUM.unpack_from(record, _LENGTH.size)
    if masked(record[: _LENGTH.size]) != checksum or length != size - _HEAD - _SUM.size:
        raise BadData(
            f"{where}: expected the length {size - _HEAD - _SUM.size} and its checksum, found {length}"
        )
    return record[_HEAD : _HEAD + length]


def masked(content: bytes) -> int:
    """The masked CRC-32C of ``content``, as the file stores it; bit by bit, for a few bytes."""
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def image_of(message: bytes, label: int, where: str) -> bytes:
    """The encoded image of a ``tf.train.Example``, whose labels count from 1; BadData for another label."""
    try:
        image, found = image_and_label(message)
    except ValueError as error:
        raise BadData(f"{where}: expected a tf.train.Example, found another message: {error}") from error
    if found != label + 1:
        raise BadData(f"{where}: expected the label {label + 1}, found {found}")
    return image


def image_and_label(message: bytes) -> tuple[bytes, int]:
    """The encoded image and the label of a ``tf.train.Example``; ValueError where it has no image.

    A label of 0 stands for none: labels count from 1.
    """
    image, label = b"", 0
    for _, features in fields(message):
        for _, entry in fields(_part(features)):
            parts = dict(fields(_part(entry)))
            name = bytes(_part(parts.get(1, 0))).decode()
            if name not in (IMAGE, LABEL):
                continue
            for _, values in fields(_part(parts.get(2, 0))):
                for _, value in fields(_part(values)):
                    if name == IMAGE:
                        image = bytes(_part(value))
                    else:
                        label = varints(value)[0]
    if not image:
        raise ValueError(f"it has no {IMAGE}")
    return image, label


def _part(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("an integer instead of a message")
    return value


def _index(path: Path, count: int) -> list[tuple[int, int]]:
    """Offset and size of each record; the size includes length and checksums."""
    try:
        lines = path.read_text("ascii").splitlines()
        entries = [(int(offset), int(size)) for offset, size in (line.split(" ") for line in lines)]
    except FileNotFoundError:
        raise BadData(f"{path.name}: expected an index, found none; convert again") from None
    except ValueError as error:
        raise BadData(f"{path.name}: expected lines of an offset and a size, found {error}") from error
    if len(entries) != count:
        raise BadData(f"{path.name}: expected {count} records, found {len(entries)}")
    return entries
