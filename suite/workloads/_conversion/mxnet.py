"""RecordIO, as MXNet writes it: ``.rec`` has a header and an image file per record, ``.idx`` the offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from mxnet import recordio

from suite.workloads._conversion.conversion import Conversion, StoredImage
from suite.workloads._conversion.source import SourceImage
from suite.workloads.storage import Shard


class Writer(Conversion):
    """Keys and ids are positions in the split; labels count from 0."""

    storage = "recordio"

    def write(self, stem: Path, samples: Iterable[SourceImage], shard: Shard, size: int) -> None:
        """See :class:`Conversion`."""
        del shard, size
        with closing(recordio.MXIndexedRecordIO(f"{stem}.idx", f"{stem}.rec", "w")) as out:
            for sample in samples:
                head = recordio.IRHeader(0, float(sample.label), sample.position, 0)
                out.write_idx(sample.position, recordio.pack(head, sample.content))

    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        """See :class:`Conversion`."""
        with closing(recordio.MXIndexedRecordIO(f"{stem}.idx", f"{stem}.rec", "r")) as written:
            for key in range(shard.first, shard.first + shard.count):
                head, content = recordio.unpack(written.read_idx(key))
                yield StoredImage(int(head.id), int(head.label), content)
