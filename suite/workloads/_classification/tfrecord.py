"""TensorFlow's TFRecord with ``tf.train.Example``, read at any place.

A record is its length (8 bytes), the length's checksum, the content, and the content's checksum; checksums
are CRC-32C, turned and shifted (``tsl/lib/hash/crc32c.h``). The index has a line ``offset size`` for each
record, as DALI's ``tfrecord2idx`` writes it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from suite.contract import BadData
from suite.workloads._classification.checksum import crc32c
from suite.workloads._classification.protobuf import fields, varints

IMAGE, LABEL = "image/encoded", "image/class/label"
_LENGTH, _SUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD = _LENGTH.size + _SUM.size


class Shard:
    """See :class:`suite.workloads._classification.samples.Shard`."""

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        del first
        self._path, self._name = folder / f"{name}.tfrecord", f"{name}.tfrecord"
        self._rows = _index(folder / f"{name}.tfrecord.idx", count)

    def read(self, row: int, label: int) -> bytes:
        """See :class:`suite.workloads._classification.samples.Shard`; labels are from 1 in the record."""
        where = f"{self._name}: record {row}"
        offset, size = self._rows[row]
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                record = file.read(size)
        except FileNotFoundError:
            raise BadData(f"{self._name}: expected a file of records, found none; convert again") from None
        try:
            image, found = _example(_content(record, size, where))
        except ValueError as error:
            if isinstance(error, BadData):
                raise
            raise BadData(f"{where}: expected a tf.train.Example, found another message: {error}") from error
        if found != label + 1:
            raise BadData(f"{where}: expected the label {label + 1}, found {found}")
        return image


def _content(record: bytes, size: int, where: str) -> bytes:
    if len(record) < size or size < _HEAD + _SUM.size:
        raise BadData(f"{where}: expected {size} bytes, found {len(record)} to the file's end")
    (length,), (checksum,) = _LENGTH.unpack_from(record), _SUM.unpack_from(record, _LENGTH.size)
    if masked(record[: _LENGTH.size]) != checksum or length != size - _HEAD - _SUM.size:
        raise BadData(
            f"{where}: expected the length {size - _HEAD - _SUM.size} and its checksum, found {length}"
        )
    content = record[_HEAD : _HEAD + length]
    if masked(content) != _SUM.unpack_from(record, _HEAD + length)[0]:
        raise BadData(f"{where}: expected the content of its checksum, found another")
    return content


def masked(content: bytes) -> int:
    """The checksum of ``content`` as the file holds it."""
    found = crc32c(content)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _example(message: bytes) -> tuple[bytes, int | None]:
    """The encoded picture and its label: of features by name, which hold lists of bytes or of integers."""
    image, label = b"", None
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
        raise ValueError("an integer in place of a part")
    return value


def _index(path: Path, count: int) -> list[tuple[int, int]]:
    """Offset and size of each record, its head and checksums included."""
    try:
        lines = path.read_text("ascii").splitlines()
        found = [(int(offset), int(size)) for offset, size in (line.split(" ") for line in lines)]
    except FileNotFoundError:
        raise BadData(f"{path.name}: expected an index, found none; convert again") from None
    except ValueError as error:
        raise BadData(f"{path.name}: expected lines of an offset and a size, found {error}") from error
    if len(found) != count:
        raise BadData(f"{path.name}: expected {count} records, found {len(found)}")
    return found
