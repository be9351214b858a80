"""Pictures by Pillow on threads: the reader that gives the same bytes in every framework."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from PIL import Image

from suite.common.decoder import DECODER, decode
from suite.common.image_reader import U8, Ahead, Item, Pictures, Request

__all__ = ["DECODER", "Reader", "render"]

_CHUNK = 8  # pictures that a thread takes at a time


def render(pictures: Pictures, item: Item, shape: tuple[int, int]) -> U8:
    """One picture [height, width, 3], resized bilinearly with antialiasing."""
    picture = decode(pictures.content(item), pictures.name(item))
    view = pictures.view(item, picture.width, picture.height)
    if view.box != (0, 0, *picture.size):  # cut first: resizing with a box would look beyond its edges
        picture = picture.crop(view.box)
    if view.size != picture.size:
        picture = picture.resize(view.size, Image.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    if view.flipped:
        pixels = pixels[:, ::-1]
    left, upper = view.corner
    pixels = pixels[upper : upper + shape[0], left : left + shape[1]]
    if pixels.shape[:2] == shape:
        return pixels
    found = np.full((*shape, 3), pictures.fill, np.uint8)
    found[: pixels.shape[0], : pixels.shape[1]] = pixels
    return found


class Reader(Ahead):
    """See :class:`suite.common.image_reader.Reader`."""

    def __init__(self, pictures: Pictures, batch: int, threads: int, ahead: int) -> None:
        del batch
        self._pictures = pictures
        pool = ThreadPoolExecutor(threads) if ahead else None
        super().__init__(lambda request: _Batch(pictures, request, pool), ahead)


class _Batch:
    """A batch in the making."""

    def __init__(self, pictures: Pictures, request: Request, pool: ThreadPoolExecutor | None) -> None:
        self._pictures, self._request = pictures, request
        count = len(request.items)
        self._images = np.empty((count, *request.shape, 3), np.uint8)
        self._futures: list[Future[None]] = []
        if pool is not None:
            parts = [range(at, min(at + _CHUNK, count)) for at in range(0, count, _CHUNK)]
            self._futures = [pool.submit(self._fill, part) for part in parts]

    def _fill(self, places: Iterable[int]) -> None:
        for at in places:
            self._images[at] = render(self._pictures, self._request.items[at], self._request.shape)

    def cancel(self) -> None:
        """Nobody will ask for it."""
        for future in self._futures:
            future.cancel()

    def result(self) -> U8:
        """The finished batch; raises what reading one of its pictures raised."""
        if not self._futures:
            self._fill(range(len(self._request.items)))
        for future in self._futures:
            future.result()
        return self._images
