"""Reads single records of MXNet's RecordIO (dmlc-core's ``recordio.h``, ``IRHeader`` of ``mxnet.recordio``).

A record is the magic number, a 32-bit word (upper 3 bits: kind of part; lower 29 bits: length) and the
content, padded to 4 bytes. A content that contains the magic number is split there into several parts. The
index has a line ``key<TAB>offset`` for each record.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from suite.contract import BadData

_MAGIC = 0xCED7230A
_WHOLE, _FIRST, _LAST = 0, 1, 3  # kinds of parts; 2 is a middle part
_HEAD = struct.Struct("<II")
_HEADER = struct.Struct("<IfQQ")  # count of further labels, label, id, second id


class Shard:
    """See :class:`suite.workloads._classification.samples.Shard`."""

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        self._path, self._name = folder / f"{name}.rec", f"{name}.rec"
        self._offsets = _index(folder / f"{name}.idx", first, count)

    def read(self, row: int, label: int) -> bytes:
        """See :class:`suite.workloads._classification.samples.Shard`."""
        where = f"{self._name}: record {row}"
        try:
            # Opened for each record: a process cannot hold thousands of shards open.
            with self._path.open("rb") as file:
                file.seek(self._offsets[row])
                record = _record(file, where)
        except FileNotFoundError:
            raise BadData(f"{self._name}: expected a file of records, found none; convert again") from None
        if len(record) < _HEADER.size:
            raise BadData(f"{where}: expected a header of {_HEADER.size} bytes, found {len(record)} bytes")
        further, found, *_ = _HEADER.unpack_from(record)
        if (further, found) != (0, label):
            raise BadData(f"{where}: expected the label {label}, found {found:g} and {further} further ones")
        return record[_HEADER.size :]


def _record(file: BinaryIO, where: str) -> bytes:
    """The content of the record at the file's position, its parts joined by the magic number."""
    parts: list[bytes] = []
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise BadData(
                f"{where}: expected {_HEAD.size} bytes of a record's header, found the end of the file"
            )
        magic, word = _HEAD.unpack(head)
        part, length = word >> 29, word & (1 << 29) - 1
        if magic != _MAGIC or (part in (_WHOLE, _FIRST)) != (not parts):
            raise BadData(
                f"{where}: expected the magic number {_MAGIC:#x} of a record, found {magic:#x}, {part}"
            )
        content = file.read(length)
        if len(content) < length:
            raise BadData(f"{where}: expected {length} bytes, found {len(content)} to the end of the file")
        file.read(-length % 4)
        parts.append(content)
        if part in (_WHOLE, _LAST):
            return _MAGIC.to_bytes(4, "little").join(parts)


def _index(path: Path, first: int, count: int) -> list[int]:
    """The offset of each record; keys are positions in the split, from ``first``."""
    try:
        lines = path.read_text("ascii").splitlines()
        entries = [tuple(int(part) for part in line.split("\t")) for line in lines]
    except FileNotFoundError:
        raise BadData(f"{path.name}: expected an index, found none; convert again") from None
    except ValueError as error:
        raise BadData(f"{path.name}: expected lines of a key and an offset, found {error}") from error
    for row, entry in enumerate(entries):
        if len(entry) != 2 or entry[0] != first + row or entry[1] < 0:
            raise BadData(f"{path.name}: line {row + 1}: expected the key {first + row} and an offset")
    if len(entries) != count:
        raise BadData(f"{path.name}: expected {count} records, found {len(entries)}")
    return [entry[1] for entry in entries]
