"""The whole conversion: every shard, on all threads, going on where an earlier attempt was cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from concurrent.futures import as_completed
from dataclasses import asdict
from pathlib import Path

from suite.workloads._conversion.conversion import Conversion, Done
from suite.workloads.storage import Shard, files_digest

FINISHED = "finished"  # the folder, beside the shards, with a file for each finished one


def complete(writer: Conversion, scratch: Path) -> Generator[tuple[Shard, Done, bool], None, None]:
    """Make every shard of ``writer``; yields each as it is finished, with whether it was so before.

    A finished shard has a note, written behind it, with the digest of its files. One whose files still have
    it is not made again. Raises as :meth:`Conversion.convert`.
    """
    notes = scratch / FINISHED
    notes.mkdir(exist_ok=True)

    def make(shard: Shard) -> tuple[Shard, Done, bool]:
        note = notes / f"{shard.name(writer.storage)}.json"
        if (before := _finished(writer, shard, note)) is not None:
            return shard, before, True
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


def _finished(writer: Conversion, shard: Shard, note: Path) -> Done | None:
    """What the note says of ``shard``, if its files are as they were then."""
    try:
        done = Done(**json.loads(note.read_text()))
        written = files_digest(writer.out, shard.files(writer.storage))
    except (OSError, ValueError, TypeError):
        return None
    return done if written == done.written else None
