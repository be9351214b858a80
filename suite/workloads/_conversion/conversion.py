"""Conversion of a folder of pictures: a step is one shard, written, synced, read back and verified.

What is framework-neutral is here; a framework's module writes and reads its own storage format. Shards are
made on threads, as many as the job has: reading, decoding, hashing and writing let go of the interpreter's
lock, a thread's processor time and memory are the process's own, and none is left when the worker ends.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suite.contract import STEPS, WARMUP_STEPS, ConversionJob
from suite.workloads._conversion.source import Sample, Source
from suite.workloads.storage import Shard, files_digest, layout

SHARDS = "shards"  # the folder of finished shards, within the scratch


class Record(NamedTuple):
    """What a shard gives back of a sample."""

    place: int
    label: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """One finished shard.

    ``pixels`` is over the digests of its pictures' pixels in order, ``written`` over those of its files.
    """

    pictures: int
    bytes_in: int
    bytes_out: int
    pixels: str
    written: str


class Conversion(ABC):
    """What the timing loop drives in place of a pair (:class:`suite.contract.Pair`): its steps are shards."""

    storage: str

    def __init__(self, job: ConversionJob) -> None:
        self.out = Path(job.scratch_dir) / SHARDS
        self.out.mkdir(exist_ok=True)
        self._source = Source(Path(job.data_dir))
        self.shards = layout(self._source.pictures, job.key.batch)
        self.pool = _started(job.threads)
        self._pending: dict[int, Future[Done]] = {}
        self._done: dict[int, Done] = {}
        self._results: list[Any] = []

    @abstractmethod
    def write(self, stem: Path, samples: Iterable[Sample], shard: Shard, size: int) -> None:
        """Write the ``samples`` of ``shard``, of ``size`` bytes in all, to files that begin with ``stem``.

        Files that are there already are of an attempt that was cut off, and are replaced.
        """

    @abstractmethod
    def read(self, stem: Path, shard: Shard) -> Iterator[Record]:
        """The samples of a written shard in order, by the format's own reader and index."""

    def convert(self, shard: Shard) -> Done:
        """Make ``shard`` and verify it.

        BadData names a picture that is not as the list promises, OSError a shard that does not give back what
        was written.
        """
        stem = self.out / shard.name(self.storage)
        sizes = self._source.sizes(shard.split, shard.first, shard.count)
        digests: list[bytes] = []
        self.write(stem, self._samples(shard, digests), shard, sum(sizes))
        files = [self.out / name for name in shard.files(self.storage)]
        for file in files:
            _sync(file)
        pixels = self._verified(shard, stem, digests)
        size = sum(file.stat().st_size for file in files)
        return Done(shard.count, sum(sizes), size, pixels, files_digest(self.out, shard.files(self.storage)))

    def _samples(self, shard: Shard, digests: list[bytes]) -> Iterator[Sample]:
        """The shard's pictures one by one, with ``digests`` of what was handed out."""
        for place in range(shard.first, shard.first + shard.count):
            sample = self._source.read(shard.split, place)
            digests.append(_digest(sample.place, sample.label, sample.content))
            yield sample

    def _verified(self, shard: Shard, stem: Path, digests: list[bytes]) -> str:
        """The digest over the pixels of what is read back, which must be what was written."""
        pixels = hashlib.sha256()
        found = 0
        for wanted, record in zip(digests, self.read(stem, shard), strict=False):
            if _digest(*record) != wanted:
                break
            shown = self._source.verify(shard.split, shard.first + found, record.content)
            pixels.update(bytes.fromhex(shown))
            found += 1
        if found != shard.count:
            told = f"{stem.name}: record {found}: expected what was written, read back something else"
            raise OSError(errno.EIO, told)
        return pixels.hexdigest()

    # What the timing loop calls.

    def step(self, index: int) -> None:
        """Wait for shard ``index``. The first step of a span hands all of its shards to the threads.

        So no shard of the window begins before the window does, and timestamps come in the order of shards.
        """
        if index not in self._pending:
            last = WARMUP_STEPS if index < WARMUP_STEPS else STEPS
            for at in range(index, last):
                self._pending[at] = self.pool.submit(self.convert, self.shards[at])
        try:
            done = self._pending.pop(index).result()
        except BaseException:
            self.pool.shutdown(wait=False, cancel_futures=True)  # nothing more is made of bad data
            raise
        self._done[index] = done
        self._results.append(np.frombuffer(bytes.fromhex(done.written), np.uint8))

    def collect(self) -> list[Any]:
        """The digest of each shard since the last call, as bytes."""
        found, self._results = self._results, []
        return found

    def reset(self) -> None:
        """End what was begun and remove what was written: the next steps make the same shards anew."""
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.cancel():
                future.result()
        self._done.clear()
        self._results.clear()
        shutil.rmtree(self.out)
        self.out.mkdir()

    def parameters(self) -> dict[str, Any]:
        """None: there is no model."""
        return {}

    def finished(self) -> list[Done]:
        """The shards of all 110 steps, after the window."""
        return [self._done[index] for index in range(STEPS)]

    def close(self) -> None:
        """End the threads and remove what was written."""
        self.pool.shutdown(cancel_futures=True)
        shutil.rmtree(self.out, ignore_errors=True)


def _digest(place: int, label: int, content: bytes) -> bytes:
    head = f"{place} {label}\n".encode()
    return hashlib.sha256(head + content).digest()


def _sync(file: Path) -> None:
    """Put a file on its disk: a shard that is in memory alone is not finished."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _started(threads: int) -> ThreadPoolExecutor:
    """A pool whose threads all run already: none is born in the window."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="convert")
    ready = threading.Barrier(threads)
    for future in [pool.submit(ready.wait) for _ in range(threads)]:
        future.result()
    return pool
