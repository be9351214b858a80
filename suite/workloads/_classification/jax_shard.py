"""Reads single records of ArrayRecord with ``tf.train.Example``, as TensorFlow Datasets fills both formats.

A file has its own index and a hash for each record (Riegeli), which the package ``array_record`` compares.
"""

from __future__ import annotations

from pathlib import Path

from array_record.python.array_record_module import ArrayRecordReader

from suite.contract import BadData
from suite.workloads._classification.tensorflow_shard import image_of


class Shard:
    """See :class:`suite.workloads._classification.samples.Shard`.

    The file is opened anew for each image, which takes 0.1 ms: a process cannot hold thousands of them open.
    """

    def __init__(self, folder: Path, name: str, first: int, count: int) -> None:
        del first
        self._path, self._name, self._count = folder / f"{name}.array_record", f"{name}.array_record", count

    def read(self, row: int, label: int) -> bytes:
        """See :class:`suite.workloads._classification.samples.Shard`."""
        if not self._path.is_file():
            raise BadData(f"{self._name}: expected a file of records, found none; convert again")
        where = f"{self._name}: record {row}"
        reader = ArrayRecordReader(str(self._path), "readahead_buffer_size:0")
        try:
            if (found := reader.num_records()) != self._count:  # 0 where the file is no ArrayRecord
                raise BadData(f"{self._name}: expected {self._count} records, found {found}")
            (record,) = reader.read([row])
        except RuntimeError as error:
            raise BadData(f"{where}: expected a content that matches its hash, found {error}") from error
        finally:
            reader.close()
        return image_of(record, label, where)
