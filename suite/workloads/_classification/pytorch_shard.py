"""Reads shards of LMDB: a database per shard, with keys ``%08d`` (the position in the split).

A value is a ``Datum`` of ``caffe.proto``: data (4), label (5), encoded (7).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from suite.contract import BadData
from suite.workloads._classification.protobuf import fields

_DATA, _LABEL, _ENCODED = 4, 5, 7
_TURNS: dict[Path, Lock] = {}


class Shard:
    """See :class:`suite.workloads._classification.samples.Shard`; ImportError where ``lmdb`` is missing.

    The database is opened anew for each image: a process cannot hold thousands of them open, and a forked
    process must not use an open one. Threads take turns: LMDB refuses to open a database twice in a process.
    """

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        self._path, self._name, self._first = folder / f"{name}.lmdb", f"{name}.lmdb", first
        if not self._path.is_dir():
            raise BadData(f"{self._name}: expected a database, found none; convert again")
        with self._database(self._name) as database, database.begin() as transaction:
            found = transaction.stat()["entries"]
        if found != count:
            raise BadData(f"{self._name}: expected {count} records, found {found}")

    @contextmanager
    def _database(self, where: str) -> Iterator[Any]:
        import lmdb

        try:
            turn = _TURNS.setdefault(self._path, Lock())
            # No process writes at the same time. Without a lock the folder may be read-only.
            with turn, lmdb.open(str(self._path), readonly=True, lock=False, readahead=False) as database:
                yield database
        except lmdb.Error as error:
            raise BadData(f"{where}: expected a readable database, found {type(error).__name__}") from error

    def read(self, row: int, label: int) -> bytes:
        """See :class:`suite.workloads._classification.samples.Shard`."""
        where = f"{self._name}: record {row}"
        key = b"%08d" % (self._first + row)
        with self._database(where) as database, database.begin() as transaction:
            record = transaction.get(key)
        if record is None:
            raise BadData(f"{where}: expected the key {key.decode()}, found none")
        try:
            datum = dict(fields(record))
        except ValueError as error:
            raise BadData(f"{where}: expected a Datum, found another message: {error}") from error
        image = datum.get(_DATA, b"")
        if isinstance(image, int) or not len(image) or datum.get(_ENCODED) != 1:
            raise BadData(f"{where}: expected an encoded image, found none")
        if (found := datum.get(_LABEL, 0)) != label:
            raise BadData(f"{where}: expected the label {label}, found {found}")
        return bytes(image)
