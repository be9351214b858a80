"""An image reader with Gluon's DataLoader: worker processes that decode and resize with the OpenCV in MXNet.

Not ``ImageRecordIter``: it draws crops and flips itself, and no other framework could repeat them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import mxnet as mx
from mxnet.gluon.data import DataLoader, Dataset

from suite.common.image_reader import U8, Images, Request, cut_off, not_whole, to_shape
from suite.common.loader_parts import QUEUED, PartItem, Parts, first_error, parts_and_workers
from suite.common.processes import die_with, shorten_sockets
from suite.contract import BadData

__all__ = ["DECODER", "Reader"]

DECODER = f"opencv of mxnet {mx.__version__}"

_LINEAR, _AREA = 1, 3  # OpenCV's interpolation modes
_WAIT_S = 600  # for one part; only this timeout notices a killed worker


class _ImageDataset(Dataset):
    """Writes one image to the shared memory of ``parts``; a BadData error is returned as a value."""

    def __init__(self, images: Images, parts: Parts) -> None:
        self._images, self._parts = images, parts

    def __len__(self) -> int:
        raise TypeError("the length of this dataset is undefined: the batch sampler provides the items")

    def __getitem__(self, at: PartItem) -> BadData | None:
        try:
            self._parts.room(at)[:] = self._read(at)
        except BadData as error:
            return error
        return None

    def _read(self, at: PartItem) -> U8:
        item = at.item
        content, name = self._images.content(item), self._images.name(item)
        if cut_off(content):
            raise not_whole(name, "its end missing")
        try:
            image = mx.image.imdecode(content)
        except mx.MXNetError:
            raise not_whole(name, "one that OpenCV cannot decode") from None
        view = self._images.view(item, image.shape[1], image.shape[0])
        left, upper, right, lower = view.box
        part = mx.nd.slice(image, begin=(upper, left, 0), end=(lower, right, 3))  # one call, not several
        return to_shape(_resized(part, view.size).asnumpy(), view, at.shape, self._images.fill)


def _resized(image: Any, size: tuple[int, int]) -> Any:
    """``image`` at ``size`` (width, height): shrunk by means of areas, then enlarged bilinearly.

    OpenCV's bilinear resizing has no antialiasing, and its means of areas only shrink.
    """
    for width, height, mode in (
        (min(size[0], image.shape[1]), min(size[1], image.shape[0]), _AREA),
        (*size, _LINEAR),
    ):
        if (height, width) != image.shape[:2]:
            image = mx.image.imresize(image, width, height, interp=mode)
    return image


class Reader:
    """See :class:`suite.common.image_reader.Reader`. Worker processes live through all runs."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        parts, workers = parts_and_workers(batch, threads, ahead)
        self._parts, self._workers = Parts(batch, parts, workers), workers
        self._dataset = _ImageDataset(images, self._parts)
        self._loader: DataLoader | None = None
        self._running: Iterator[BadData | None] = iter(())

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`."""
        self._parts.end()
        for _ in self._running:  # parts of an earlier run, which are still being written
            pass
        self._parts.begin(requests)
        if self._loader is None:
            self._loader = self._open_loader()
        self._running = iter(self._loader)
        return self._parts.join(self._running)

    def _open_loader(self) -> DataLoader:
        """The loader, which forks its processes now: they inherit the memory of ``parts``."""
        if self._workers:
            shorten_sockets()
            # Gluon has no hook that runs in a new worker process.
            os.register_at_fork(after_in_child=partial(die_with, os.getpid()))
        return DataLoader(
            self._dataset,
            batch_sampler=self._parts,
            num_workers=self._workers,
            # The request for a part starts one more.
            prefetch=QUEUED * self._workers - 1 if self._workers else 0,
            batchify_fn=first_error,
            timeout=_WAIT_S,
        )
