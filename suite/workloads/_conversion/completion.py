"""The whole conversion: every shard, on all threads, going on where an earlier attempt was cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from concurrent.futures import as_completed
from dataclasses import asdict
from pathlib import Path

from suite.workloads._conversion.conversion import Conversion, Done
from suite.workloads.forms import Shard, files_digest

MARKS = "marks"  # the folder, beside the shards, with a file for each finished one


def complete(pair: Conversion, scratch: Path) -> Generator[tuple[Shard, Done, bool], None, None]:
    """Make every shard of ``pair``; yields each as it is finished, with whether it was so before.

    A finished shard has a mark, written behind it, with the digest of its files. One whose files still have
    it is not made again. Raises as :meth:`Conversion.convert`.
    """
    marks = scratch / MARKS
    marks.mkdir(exist_ok=True)

    def make(shard: Shard) -> tuple[Shard, Done, bool]:
        mark = marks / f"{shard.name(pair.form)}.json"
        if (before := _finished(pair, shard, mark)) is not None:
            return shard, before, True
        done = pair.convert(shard)
        temporary = mark.with_suffix(".new")
        with temporary.open("w") as stream:
            json.dump(asdict(done), stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(mark)
        return shard, done, False

    try:
        for future in as_completed([pair.pool.submit(make, shard) for shard in pair.shards]):
            yield future.result()
    finally:
        pair.pool.shutdown(cancel_futures=True)


def _finished(pair: Conversion, shard: Shard, mark: Path) -> Done | None:
    """What the mark says of ``shard``, if its files are as they were then."""
    try:
        done = Done(**json.loads(mark.read_text()))
        written = files_digest(pair.out, shard.files(pair.form))
    except (OSError, ValueError, TypeError):
        return None
    return done if written == done.written else None
