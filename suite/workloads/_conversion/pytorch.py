"""LMDB, as PyTorch users store images: one database per shard, one caffe ``Datum`` per image."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

try:
    import lmdb
except ImportError as error:
    raise ImportError(
        "lmdb: expected the package in the environment of pytorch, found none; run `make environments "
        "FRAMEWORK=pytorch`, which installs the current lock"
    ) from error

from suite.workloads._conversion.conversion import Conversion, StoredImage
from suite.workloads._conversion.datum import decoded, encoded, raw
from suite.workloads._conversion.source import SourceImage
from suite.workloads.storage import Shard

_PAGE = 4096
_TRANSACTION = 32 << 20  # bytes of one transaction, which stay in memory until it ends
_TREE = 1 << 20  # bytes reserved for the tree of keys


class Writer(Conversion):
    """Keys are positions in the split, in eight digits; labels count from 0."""

    storage = "lmdb"

    def write(self, stem: Path, samples: Iterable[SourceImage], shard: Shard, size: int) -> None:
        """See :class:`Conversion`. The map has room for the tree and for each value on separate pages."""
        folder = Path(f"{stem}.lmdb")
        shutil.rmtree(folder, ignore_errors=True)
        room = _TREE + size + 3 * _PAGE * shard.count
        with lmdb.open(str(folder), map_size=-(-room // _PAGE) * _PAGE, lock=False, sync=False) as database:
            rest = iter(samples)
            while part := _next_transaction(rest):
                with database.begin(write=True) as transaction:
                    for sample in part:
                        key = f"{sample.position:08d}".encode()
                        value = (
                            encoded(sample.label, sample.content)
                            if sample.raw is None
                            else raw(sample.label, sample.content, sample.raw)
                        )
                        transaction.put(key, value, append=True)

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        """See :class:`Conversion`."""
        del shard  # the database holds the keys
        with (
            lmdb.open(f"{stem}.lmdb", readonly=True, lock=False) as database,
            database.begin() as transaction,
        ):
            for key, value in transaction.cursor():
                label, content = decoded(value)
                yield StoredImage(int(key), label, content)


def _next_transaction(samples: Iterator[SourceImage]) -> list[SourceImage]:
    """The next samples, as many as one transaction holds; empty at the end."""
    part: list[SourceImage] = []
    size = 0
    for sample in samples:
        part.append(sample)
        size += len(sample.content)
        if size >= _TRANSACTION:
            break
    return part
