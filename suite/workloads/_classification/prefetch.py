"""Batches made on threads ahead of the steps that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Read = Callable[[int], NDArray[np.uint8]]  # a place in the batch -> its image

AHEAD = 4  # batches; a cold run may have ten at most
_CHUNK = 8  # images that a thread takes at a time


class Pending:
    """A batch in the making: ``images`` are filled in by threads, the other arrays are there."""

    def __init__(self, pool: ThreadPoolExecutor | None, arrays: Arrays, read: Read) -> None:
        self._arrays, self._read = arrays, read
        self._images = arrays["images"]
        count = len(self._images)
        parts = [range(at, min(at + _CHUNK, count)) for at in range(0, count, _CHUNK)]
        self._futures: list[Future[None]] = []
        if pool is None:
            self._fill(range(count))
        else:
            self._futures = [pool.submit(self._fill, part) for part in parts]

    def _fill(self, part: Sequence[int]) -> None:
        for at in part:
            self._images[at] = self._read(at)

    def cancel(self) -> None:
        """Nobody will ask for it."""
        for future in self._futures:
            future.cancel()

    def result(self) -> Arrays:
        """The finished batch; raises what reading one of its images raised."""
        for future in self._futures:
            future.result()
        return self._arrays


class Prefetch:
    """Keeps ``AHEAD`` batches in the making beyond the one that was asked for last.

    ``start`` begins a batch. Asked for in whatever order, a batch is the same; in steps of one it is ready
    sooner.
    """

    def __init__(self, start: Callable[[int], Pending], ahead: int = AHEAD) -> None:
        self._start, self._ahead = start, ahead
        self._pending: dict[int, Pending] = {}

    def batch(self, step: int, end: int | None = None) -> Arrays:
        """Batch ``step``; none from ``end`` on is begun."""
        last = step + self._ahead if end is None else min(step + self._ahead, end - 1)
        for stale in [at for at in self._pending if not step <= at <= last]:
            self._pending.pop(stale).cancel()
        for at in range(step, last + 1):
            if at not in self._pending:
                self._pending[at] = self._start(at)
        return self._pending.pop(step).result()

    def all(self, count: int) -> Iterator[Arrays]:
        """Batches 0 to ``count`` - 1."""
        for step in range(count):
            yield self.batch(step, count)
