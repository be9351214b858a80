"""An image reader with Grain, the data loader that JAX users have: threads decode and resize with Pillow.

Grain's dataset has an element for each image of all requests. Threads suffice: Pillow decodes and resizes
without the interpreter's lock.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from threading import Lock

import grain
import numpy as np

from suite.common.image_reader import U8, Images, Request, ShapedItem
from suite.common.pillow_images import DECODER, render

__all__ = ["DECODER", "Reader"]


class Reader:
    """See :class:`suite.common.image_reader.Reader`."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        self._images = images
        # Counted in images; without a buffer Grain reads an image only when it is taken.
        self._options = grain.ReadOptions(min(threads, ahead * batch), ahead * batch)
        self._running: grain.DatasetIterator | None = None

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`."""
        if self._running is not None:
            self._running.close()
        requested = _Requested(requests)
        dataset = grain.MapDataset.source(requested).map(self._image)
        self._running = iter(dataset.to_iter_dataset(self._options, allow_nones=True))
        self._running.start_prefetch()
        return _batches(requested, self._running)

    def _image(self, shaped: ShapedItem) -> U8:
        return render(self._images, *shaped)


def _batches(requested: _Requested, images: Iterator[U8]) -> Iterator[U8]:
    while count := requested.next_size():
        yield np.stack([next(images) for _ in range(count)])


class _Requested:
    """Grain's data source: the images of all requests by position, None beyond the last.

    A request is drawn when a thread of Grain asks for its first image; the positions rise.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self._lock = Lock()
        self._drawn = 0  # images of the requests drawn
        self._items: dict[int, ShapedItem] = {}  # drawn, and not yet taken by a thread
        self._sizes: deque[int] = deque()  # of the requests drawn whose batch is not complete

    def __len__(self) -> int:
        return sys.maxsize  # unknown before the last request is drawn

    def __getitem__(self, position: int) -> ShapedItem | None:
        with self._lock:
            while self._drawn <= position and self._draw():
                pass
            return self._items.pop(position, None)

    def _draw(self) -> bool:
        request = next(self._requests, None)
        if request is None:
            return False
        for at, item in enumerate(request.items, self._drawn):
            self._items[at] = (item, request.shape)
        self._drawn += len(request.items)
        self._sizes.append(len(request.items))
        return True

    def next_size(self) -> int:
        """The number of images of the next request; 0 after the last."""
        with self._lock:
            return self._sizes.popleft() if self._sizes or self._draw() else 0
