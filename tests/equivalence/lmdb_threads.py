"""Threads that read one LMDB shard at the same time: ``… lmdb_threads FOLDER``."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suite.workloads._classification.pytorch_shard import Shard
from tests.fixtures.storage_formats import lmdb

ROWS = 50


def main(folder: str) -> None:
    """See the module; two objects have the same shard, as that of a reader and that of a count of bytes."""
    lmdb(
        Path(folder) / "val-00000-of-00001", [(at, at, f"{at}.jpg", bytes([at]) * 999) for at in range(ROWS)]
    )
    shards = [Shard(Path(folder), "val-00000-of-00001", 0, ROWS) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: shards[at % 2].read(at % ROWS, at % ROWS), range(2000)))
    assert found == [bytes([at % ROWS]) * 999 for at in range(2000)]


if __name__ == "__main__":
    main(*sys.argv[1:])
