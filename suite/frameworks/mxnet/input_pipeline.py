"""An image reader with Gluon's DataLoader: worker processes that decode and resize with the OpenCV in MXNet.

Not ``ImageRecordIter``: it draws crops and flips itself, and no other framework could repeat them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import DataLoader, Dataset

from suite.common.image_reader import (
    QUEUED,
    U8,
    Images,
    Parts,
    Request,
    ShapedItem,
    cut_off,
    not_whole,
    parts_and_workers,
    to_shape,
)
from suite.frameworks.common import die_with, shorten_sockets

__all__ = ["DECODER", "Reader"]

DECODER = f"opencv of mxnet {mx.__version__}"

_LINEAR, _AREA = 1, 3  # OpenCV's interpolation modes
_WAIT_S = 600  # for one part; only this timeout notices a killed worker


class _ImageDataset(Dataset):
    """One image as a numpy array."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __len__(self) -> int:
        raise TypeError("the length of this dataset is undefined: the batch sampler provides the items")

    def __getitem__(self, shaped: ShapedItem) -> U8:
        item, shape = shaped
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
        return to_shape(_resized(part, view.size).asnumpy(), view, shape, self._images.fill)


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


def _stack(context: Any, images: list[U8]) -> Any:
    return mx.nd.array(np.stack(images), ctx=context, dtype="uint8")


class Reader:
    """See :class:`suite.common.image_reader.Reader`. Worker processes live through all runs."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        parts, workers = parts_and_workers(batch, threads, ahead)
        self._parts = Parts(parts)
        if workers:
            shorten_sockets()
            # Gluon has no hook that runs in a new worker process.
            os.register_at_fork(after_in_child=partial(die_with, os.getpid()))
        self._loader = DataLoader(
            _ImageDataset(images),
            batch_sampler=self._parts,
            num_workers=workers,
            prefetch=QUEUED * workers - 1 if workers else 0,  # the request for a part starts one more
            batchify_fn=partial(_stack, mx.Context("cpu_shared", 0) if workers else mx.cpu()),
            timeout=_WAIT_S,
        )

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`."""
        self._parts.begin(requests)
        return self._whole(iter(self._loader))

    def _whole(self, parts: Iterator[Any]) -> Iterator[U8]:
        for part in parts:
            batch = [part, *islice(parts, self._parts.counts.popleft() - 1)]
            yield np.concatenate([one.asnumpy() for one in batch])
