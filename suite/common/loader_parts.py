"""Batches in parts, for loaders with worker processes, which write images where the main process reads them.

The memory is allocated before the processes are forked and used again and again. No image passes through a
pipe, is stacked or is copied into shared memory, and no page of it is touched for the first time in a step.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import NamedTuple

import numpy as np

from suite.common.image_reader import U8, Item, Request
from suite.contract import BadData

QUEUED = 2  # parts of batches that a loader queues for each worker process: the default of DataLoader


class PartItem(NamedTuple):
    """One image of a part: the worker process writes it, with ``shape``, to ``row`` of ``slot``."""

    item: Item
    shape: tuple[int, int]
    slot: int
    row: int


class _Part(NamedTuple):
    """Rows ``start`` to ``stop`` of the batch of ``request``, which lie in ``slot``."""

    request: Request
    start: int
    stop: int
    slot: int


def parts_and_workers(batch: int, threads: int, ahead: int) -> tuple[int, int]:
    """The parts of a batch, and the worker processes, of a loader that queues ``QUEUED`` parts per worker.

    Several workers share a batch, since the reader may start at most ``ahead`` whole batches.
    """
    parts = min(batch, -(-QUEUED * threads // ahead)) if ahead else 1
    return parts, min(threads, ahead * parts // QUEUED)


def first_error(results: Sequence[BadData | None]) -> BadData | None:
    """What a worker process reports of a part, whose images are in shared memory: its first error."""
    return next((one for one in results if one is not None), None)


class Parts:
    """A batch sampler that splits each request into parts, and the shared memory that they are written to.

    A request has at most ``parts`` parts, or more if these do not fit into a slot. Slots follow each other in
    turn: there is one more than the loader queues, and a part is copied before the next one is taken.
    """

    def __init__(self, batch: int, parts: int, workers: int) -> None:
        self._parts, self._rows = parts, -(-batch // parts)
        self._count = QUEUED * workers + 1
        self._slots: U8 | None = None
        self._begun = 0  # parts, over all iterations
        self._ended = False
        self._requests: Iterable[Request] = ()
        self._pending: deque[_Part] = deque()

    def begin(self, requests: Iterable[Request]) -> None:
        """Set the requests of the next iteration. The loader forks its processes after the first call."""
        requests = iter(requests)
        first = list(islice(requests, 1))
        if first and self._slots is None:
            size = self._rows * _image_bytes(first[0].shape)
            # Anonymous memory needs no file descriptor, and no room in /dev/shm.
            shared = np.frombuffer(mmap.mmap(-1, self._count * size), np.uint8)
            self._slots = shared.reshape(self._count, size)
        self._requests, self._pending, self._ended = chain(first, requests), deque(), False

    def end(self) -> None:
        """Hand out no more parts of the running iteration."""
        self._ended = True

    def __iter__(self) -> Iterator[list[PartItem]]:
        for request in self._requests:
            count = len(request.items)
            for rows in np.array_split(np.arange(count), min(count, max(self._parts, self._least(request)))):
                if self._ended:
                    return
                part = _Part(request, int(rows[0]), int(rows[-1]) + 1, self._begun % self._count)
                self._begun += 1
                self._pending.append(part)
                items = request.items[part.start : part.stop]
                yield [PartItem(item, request.shape, part.slot, row) for row, item in enumerate(items)]

    def _least(self, request: Request) -> int:
        """The fewest parts of ``request`` that fit into slots; ValueError if an image is larger than one."""
        assert self._slots is not None
        fitting = self._slots.shape[1] // _image_bytes(request.shape)
        if not fitting:
            raise ValueError(
                f"expected images of at most {self._slots.shape[1]} bytes, found {request.shape}"
            )
        return -(-len(request.items) // fitting)

    def room(self, at: PartItem) -> U8:
        """Where the image of ``at`` is written: [height, width, 3]."""
        return self._images(at.slot, at.row + 1, at.shape)[at.row]

    def _images(self, slot: int, count: int, shape: tuple[int, int]) -> U8:
        assert self._slots is not None
        return self._slots[slot, : count * _image_bytes(shape)].reshape(count, *shape, 3)

    def join(self, done: Iterable[BadData | None]) -> Iterator[U8]:
        """The batches, as the loader reports its parts ``done``, in order; raises a reported BadData."""
        batch = np.empty(0, np.uint8)
        for error in done:
            if isinstance(error, BadData):
                raise error
            part = self._pending.popleft()
            count, shape = len(part.request.items), part.request.shape
            if part.start == 0:
                batch = np.empty((count, *shape, 3), np.uint8)
            batch[part.start : part.stop] = self._images(part.slot, part.stop - part.start, shape)
            if part.stop == count:
                yield batch


def _image_bytes(shape: tuple[int, int]) -> int:
    return prod(shape) * 3
