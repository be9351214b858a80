"""Conversion of a folder of images: a step is one shard, written, synced, read back and verified.

This module is framework-neutral; a framework's module writes and reads its storage format. Threads make the
shards: reading, decoding, hashing and writing release the interpreter's lock, CPU time and memory of threads
count for the process, and no thread outlives the worker.
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
from suite.workloads._conversion.source import SourceImage, SourceImages, encoded_again, stored_digest
from suite.workloads.storage import Encoding, Shard, encoding_of, files_digest, layout

SHARDS = "shards"  # the folder of finished shards, within the scratch folder


class StoredImage(NamedTuple):
    """A sample as read back from a shard."""

    position: int  # in the split
    label: int
    content: bytes


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """One finished shard.

    ``pixels`` is the digest over its images' pixel digests in order, ``written`` over its files' digests. The
    names of the fields are those of the worker protocol and of the notes on disk.
    """

    images: int
    bytes_in: int
    bytes_out: int
    pixels: str
    written: str


class Conversion(ABC):
    """What the timing loop drives instead of a :class:`suite.contract.Pair`: its steps are shards."""

    storage: str

    def __init__(self, job: ConversionJob) -> None:
        self.out = Path(job.scratch_dir) / SHARDS
        self.out.mkdir(exist_ok=True)
        self._source = SourceImages(Path(job.data_dir))
        self._encoding = encoding_of(job.key.encoding)
        self.shards = layout(self._source.images, job.key.batch)
        self.pool = _started_pool(job.threads)
        self._pending: dict[int, Future[FinishedShard]] = {}
        self._done: dict[int, FinishedShard] = {}
        self._results: list[Any] = []

    @abstractmethod
    def write(self, stem: Path, samples: Iterable[SourceImage], shard: Shard, size: int) -> None:
        """Write the ``samples`` of ``shard`` (at most ``size`` bytes) to files that begin with ``stem``.

        Existing files are left from an interrupted attempt and are replaced.
        """

    @abstractmethod
    def read(self, stem: Path, shard: Shard) -> Iterator[StoredImage]:
        """The samples of a written shard in order, read by the storage format's reader and index."""

    def convert(self, shard: Shard) -> FinishedShard:
        """Make ``shard`` and verify it.

        BadData names an image that differs from the list's digest, OSError a shard whose content read back
        differs from what was written.
        """
        stem = self.out / shard.name(self.storage)
        sizes = self._source.sizes(shard.split, shard.first, shard.count)
        digests: list[bytes] = []
        most = sum(sizes) if self._encoding is None else shard.count * _most_bytes(self._encoding)
        self.write(stem, self._samples(shard, digests), shard, most)
        files = [self.out / name for name in shard.files(self.storage)]
        for file in files:
            _sync(file)
        pixels = self._verified(shard, stem, digests)
        size = sum(file.stat().st_size for file in files)
        written = files_digest(self.out, shard.files(self.storage))
        return FinishedShard(shard.count, sum(sizes), size, pixels, written)

    def _samples(self, shard: Shard, digests: list[bytes]) -> Iterator[SourceImage]:
        """The shard's images one by one; appends the digest of each to ``digests``."""
        for position in range(shard.first, shard.first + shard.count):
            sample = self._source.read(shard.split, position)
            if self._encoding is not None:
                self._source.verify(shard.split, position, sample.content)
                sample = encoded_again(sample, self._encoding)
            digests.append(_digest(sample.position, sample.label, sample.content))
            yield sample

    def _verified(self, shard: Shard, stem: Path, digests: list[bytes]) -> str:
        """The digest over the pixels read back; OSError where the shard differs from what was written."""
        pixels = hashlib.sha256()
        verified = 0
        for expected, record in zip(digests, self.read(stem, shard), strict=False):
            if _digest(*record) != expected:
                break
            pixels.update(bytes.fromhex(self._pixels_of(shard, shard.first + verified, record)))
            verified += 1
        if verified != shard.count:
            message = f"{stem.name}: record {verified}: expected what was written, found another content"
            raise OSError(errno.EIO, message)
        return pixels.hexdigest()

    def _pixels_of(self, shard: Shard, position: int, record: StoredImage) -> str:
        """The digest of the pixels of a record; of an unchanged file, that it is the one in the list."""
        if self._encoding is None:
            return self._source.verify(shard.split, position, record.content)
        raw = self._encoding.size if self._encoding.kind == "raw" else None
        name = f"{shard.name(self.storage)}: record {position - shard.first}"
        return stored_digest(SourceImage(position, record.label, name, record.content, raw))

    # Called by the timing loop.

    def step(self, index: int) -> None:
        """Wait for shard ``index``. The first step of warm-up or window submits all shards of that span.

        No shard of the window is begun before the window, and timestamps come in the order of shards.
        """
        if index not in self._pending:
            last = WARMUP_STEPS if index < WARMUP_STEPS else STEPS
            for at in range(index, last):
                if at not in self._pending:  # the step that compiles has submitted its span
                    self._pending[at] = self.pool.submit(self.convert, self.shards[at])
        try:
            done = self._pending.pop(index).result()
        except BaseException:
            self.pool.shutdown(wait=False, cancel_futures=True)  # make no further shards of bad data
            raise
        self._done[index] = done
        self._results.append(np.frombuffer(bytes.fromhex(done.written), np.uint8))

    def collect(self) -> list[Any]:
        """The digest of each shard since the last call, as bytes."""
        results, self._results = self._results, []
        return results

    def reset(self) -> None:
        """Finish or cancel pending shards and remove all files: the next steps make the same shards again."""
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.cancel():
                future.result()
        self._done.clear()
        self._results.clear()
        shutil.rmtree(self.out)
        self.out.mkdir()

    def parameters(self) -> dict[str, Any]:
        """Empty: there is no model."""
        return {}

    def finished(self) -> list[FinishedShard]:
        """The shards of all 110 steps; to be called after the window."""
        return [self._done[index] for index in range(STEPS)]

    def close(self) -> None:
        """End the threads and remove the shards."""
        self.pool.shutdown(cancel_futures=True)
        shutil.rmtree(self.out, ignore_errors=True)


def _most_bytes(encoding: Encoding) -> int:
    """The most bytes of an image, assuming that no JPEG is larger than its pixels and tables."""
    return 3 * encoding.size**2 + 4096


def _digest(position: int, label: int, content: bytes) -> bytes:
    return hashlib.sha256(f"{position} {label}\n".encode() + content).digest()


def _sync(file: Path) -> None:
    """Write a file through to its disk: a shard counts as finished only then."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _started_pool(threads: int) -> ThreadPoolExecutor:
    """A pool whose threads all run: none is started inside the window."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="convert")
    ready = threading.Barrier(threads)
    for future in [pool.submit(ready.wait) for _ in range(threads)]:
        future.result()
    return pool
