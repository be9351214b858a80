"""Encoded images of a batch, read by worker processes into memory that they share with the main process.

Threads would not do: each image takes some 100 microseconds of Python, and threads that read files wait for
the interpreter's lock after each system call: 16 threads on 16 cores read 8,700 files/s.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from suite.common.decoder import size_of
from suite.common.image_reader import (
    U8,
    Images,
    Item,
    ReadAhead,
    Request,
    View,
    cut_off,
    jpeg_header,
    not_whole,
)
from suite.common.processes import die_with

LARGEST = 100  # images in a batch of an evaluation
_MOST_PROCESSES = 8  # with four, a JPEG engine that takes 22,000 images/s got 20,000
_CHUNK = 32  # images that a process reads at a time
_ROOM = 256 << 10  # bytes of shared memory for each image of a chunk, on average


class Encoded(NamedTuple):
    """An image as it is stored, and how it is transformed."""

    content: U8
    view: View


class EncodedImages:
    """Reads the images of batches of at most ``batch`` images; ``slots`` batches may be in use at a time."""

    def __init__(self, images: Images, batch: int, processes: int, slots: int) -> None:
        self._images = images
        self._pool: ProcessPoolExecutor | None = None
        self.memory: U8 = np.empty(0, np.uint8)  # that the processes share, [slots, bytes]
        if not processes:
            return
        # Anonymous memory needs no file descriptor, and no room in /dev/shm. Pages are taken when used.
        rows = -(-batch // _CHUNK) * _CHUNK
        self.memory = np.frombuffer(mmap.mmap(-1, slots * rows * _ROOM), np.uint8).reshape(
            slots, rows * _ROOM
        )
        self._pool = ProcessPoolExecutor(
            min(processes, _MOST_PROCESSES),
            multiprocessing.get_context("fork"),
            partial(_begin, os.getpid()),
            (images, self.memory),
        )
        self._pool.submit(os.getpid).result()  # fork now, before the model is built

    def read(self, items: Sequence[Item], slot: int) -> list[Encoded]:
        """The images of ``items``, valid until the next use of ``slot``; BadData names a broken one."""
        if self._pool is None:
            return [encoded(self._images, item) for item in items]
        starts = range(0, len(items), _CHUNK)
        parts = [items[at : at + _CHUNK] for at in starts]
        found: list[Encoded] = []
        for part in self._pool.map(_read, parts, [slot] * len(parts), [at * _ROOM for at in starts]):
            for content, view in part:
                if isinstance(content, tuple):
                    content = self.memory[slot, content[0] : content[1]]
                found.append(Encoded(content, view))
        return found


Decode = Callable[[list[Encoded], Request], Any]


class DecodedImages(ReadAhead):
    """The ``run`` of a reader that decodes whole batches of at most ``batch`` images.

    ``processes`` read files. Each of ``decoders`` makes one batch at a time from its encoded images, which
    are valid until it returns; as many batches are read as are decoded at the same time.
    """

    def __init__(
        self, images: Images, batch: int, processes: int, ahead: int, decoders: Sequence[Decode]
    ) -> None:
        count = 2 * len(decoders)
        self.encoded = EncodedImages(images, batch, processes if ahead else 0, count)
        self._decoders, self._slots = SimpleQueue[Decode](), SimpleQueue[int]()
        for decoder in decoders:
            self._decoders.put(decoder)
        for slot in range(count):
            self._slots.put(slot)
        batches = ThreadPoolExecutor(count)
        super().__init__(lambda request: batches.submit(self._batch, request), ahead)

    def _batch(self, request: Request) -> Any:
        slot = self._slots.get()
        try:
            found = self.encoded.read(request.items, slot)
            decode = self._decoders.get()
            try:
                return decode(found, request)
            finally:
                self._decoders.put(decode)
        finally:
            self._slots.put(slot)


def encoded(images: Images, item: Item) -> Encoded:
    """One image; BadData if it is not whole, as far as its header and its end show."""
    content, name = images.content(item), images.name(item)
    header = jpeg_header(content)
    width, height = header[:2] if header is not None else size_of(content, name)
    if cut_off(content, header):
        raise not_whole(name, "its end missing")
    return Encoded(np.frombuffer(content, np.uint8), images.view(item, width, height))


_state: Any = None  # of a worker process: the images, and the shared memory


def _begin(parent: int, images: Images, memory: U8) -> None:
    global _state
    die_with(parent)
    _state = images, memory


def _read(items: Sequence[Item], slot: int, start: int) -> list[tuple[tuple[int, int] | U8, View]]:
    """The images, with the bounds of their content in ``slot``; with the content where it does not fit."""
    images, memory = _state
    end = start + _CHUNK * _ROOM
    found: list[tuple[tuple[int, int] | U8, View]] = []
    for item in items:
        content, view = encoded(images, item)
        if start + len(content) > end:
            found.append((content, view))
            continue
        memory[slot, start : start + len(content)] = content
        found.append(((start, start + len(content)), view))
        start += len(content)
    return found
