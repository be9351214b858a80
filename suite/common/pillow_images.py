"""An image reader with Pillow on threads; it produces the same bytes in every framework."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from PIL import Image

from suite.common.decoder import DECODER, decode
from suite.common.image_reader import U8, Images, Item, ReadAhead, Request, to_shape

__all__ = ["DECODER", "Reader", "render"]

_CHUNK = 8  # images that a thread reads at a time


def render(images: Images, item: Item, shape: tuple[int, int]) -> U8:
    """One image [height, width, 3], resized bilinearly with antialiasing."""
    image = decode(images.content(item), images.name(item))
    view = images.view(item, image.width, image.height)
    if view.box != (0, 0, *image.size):  # cut first: resizing with a box reads pixels beyond its edges
        image = image.crop(view.box)
    if view.size != image.size:
        image = image.resize(view.size, Image.Resampling.BILINEAR)
    if view.flipped:  # Pillow mirrors four bytes at a time, numpy one
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return to_shape(np.asarray(image), view._replace(flipped=False), shape, images.fill)


class Reader(ReadAhead):
    """See :class:`suite.common.image_reader.Reader`."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        del batch
        self._images = images
        pool = ThreadPoolExecutor(threads) if ahead else None
        super().__init__(lambda request: _Batch(images, request, pool), ahead)


class _Batch:
    """See :class:`suite.common.image_reader.PendingBatch`."""

    def __init__(self, images: Images, request: Request, pool: ThreadPoolExecutor | None) -> None:
        self._images, self._request = images, request
        count = len(request.items)
        self._pixels = np.empty((count, *request.shape, 3), np.uint8)
        self._futures: list[Future[None]] = []
        if pool is not None:
            parts = [range(at, min(at + _CHUNK, count)) for at in range(0, count, _CHUNK)]
            self._futures = [pool.submit(self._fill, part) for part in parts]

    def _fill(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._pixels[row] = render(self._images, self._request.items[row], self._request.shape)

    def cancel(self) -> None:
        """See :class:`suite.common.image_reader.PendingBatch`."""
        for future in self._futures:
            future.cancel()

    def result(self) -> U8:
        """See :class:`suite.common.image_reader.PendingBatch`."""
        if not self._futures:
            self._fill(range(len(self._request.items)))
        for future in self._futures:
            future.result()
        return self._pixels
