"""MXNet's RecordIO, read at any place: dmlc-core's ``recordio.h`` and ``IRHeader`` of ``mxnet.recordio``.

A record is the magic number, a word whose upper 3 bits tell which part it is and whose lower 29 bits its
length, and the content, padded to 4 bytes. Where a content held the magic number it was cut there into parts.
The index has a line ``key<TAB>offset`` for each record.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from suite.contract import BadData

_MAGIC = 0xCED7230A
_WHOLE, _FIRST, _LAST = 0, 1, 3  # of what a record is the part; 2: from the middle
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
            # Opened anew: thousands of shards are more than a process may hold open.
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
    """The content from here on, its parts joined by the magic number that they were cut at."""
    parts: list[bytes] = []
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise BadData(f"{where}: expected {_HEAD.size} bytes of a record's head, found the file's end")
        magic, word = _HEAD.unpack(head)
        part, length = word >> 29, word & (1 << 29) - 1
        if magic != _MAGIC or (part in (_WHOLE, _FIRST)) != (not parts):
            raise BadData(
                f"{where}: expected the magic number {_MAGIC:#x} of a record, found {magic:#x}, {part}"
            )
        content = file.read(length)
        if len(content) < length:
            raise BadData(f"{where}: expected {length} bytes, found {len(content)} to the file's end")
        file.read(-length % 4)
        parts.append(content)
        if part in (_WHOLE, _LAST):
            return _MAGIC.to_bytes(4, "little").join(parts)


def _index(path: Path, first: int, count: int) -> list[int]:
    """The offset of each record; its keys are the places in the split."""
    try:
        lines = path.read_text("ascii").splitlines()
        found = [tuple(int(part) for part in line.split("\t")) for line in lines]
    except FileNotFoundError:
        raise BadData(f"{path.name}: expected an index, found none; convert again") from None
    except ValueError as error:
        raise BadData(f"{path.name}: expected lines of a key and an offset, found {error}") from error
    for row, entry in enumerate(found):
        if len(entry) != 2 or entry[0] != first + row or entry[1] < 0:
            raise BadData(f"{path.name}: line {row + 1}: expected the key {first + row} and an offset")
    if len(found) != count:
        raise BadData(f"{path.name}: expected {count} records, found {len(found)}")
    return [entry[1] for entry in found]
