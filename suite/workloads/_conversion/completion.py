"""The complete conversion: every shard, on all threads; continues after an interrupted attempt."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from concurrent.futures import as_completed
from dataclasses import asdict
from pathlib import Path

from suite.workloads._conversion.conversion import Conversion, FinishedShard
from suite.workloads.storage import Shard, files_digest

FINISHED = "finished"  # the folder, beside the shards, with a note for each finished shard


def complete(writer: Conversion, scratch: Path) -> Generator[tuple[Shard, FinishedShard, bool], None, None]:
    """Make every shard of ``writer``; yields each when finished, and whether an earlier attempt finished it.

    A note with the digest of its files is written after each shard. A shard whose files still match its note
    is not made again. Raises as :meth:`Conversion.convert`.
    """
    notes = scratch / FINISHED
    notes.mkdir(exist_ok=True)

    def make(shard: Shard) -> tuple[Shard, FinishedShard, bool]:
        note = notes / f"{shard.name(writer.storage)}.json"
        if (earlier := _finished(writer, shard, note)) is not None:
            return shard, earlier, True
        done = writer.convert(shard)
        temporary = note.with_suffix(".new")
        with temporary.open("w") as stream:
            json.dump(asdict(done), stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(note)
        return shard, done, False

    try:
        for future in as_completed([writer.pool.submit(make, shard) for shard in writer.shards]):
            yield future.result()
    finally:
        writer.pool.shutdown(cancel_futures=True)


def _finished(writer: Conversion, shard: Shard, note: Path) -> FinishedShard | None:
    """The content of the shard's note; None where it is missing or the shard's files have changed."""
    try:
        done = FinishedShard(**json.loads(note.read_text()))
        written = files_digest(writer.out, shard.files(writer.storage))
    except (OSError, ValueError, TypeError):
        return None
    return done if written == done.written else None
