"""Pictures by Gluon's DataLoader: worker processes that decode and resize with the OpenCV in MXNet.

Not ``ImageRecordIter``: it draws its own crops and flips, which no other framework could repeat.
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

from suite.common.image_reader import U8, Parts, Pictures, Place, Request, cut_off, not_whole
from suite.frameworks.common import die_with, shorten_sockets

__all__ = ["DECODER", "Reader"]

DECODER = f"opencv of mxnet {mx.__version__}"

_EACH = 2  # parts of batches for each worker: DataLoader's own default
_LINEAR, _AREA = 1, 3  # OpenCV's numbers
_WAIT_S = 600  # for one part; a worker that was killed is noticed only so


class _Pictures(Dataset):
    """One picture as an array of numpy."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        raise TypeError("the sampler decides how many there are")

    def __getitem__(self, place: Place) -> U8:
        item, shape = place
        content, name = self._pictures.content(item), self._pictures.name(item)
        if cut_off(content):
            raise not_whole(name, "its end missing")
        try:
            picture = mx.image.imdecode(content)
        except mx.MXNetError:
            raise not_whole(name, "one that OpenCV cannot decode") from None
        view = self._pictures.view(item, picture.shape[1], picture.shape[0])
        left, upper, right, lower = view.box
        part = mx.nd.slice(picture, begin=(upper, left, 0), end=(lower, right, 3))  # one call, not several
        pixels = _resized(part, view.size).asnumpy()
        if view.flipped:
            pixels = pixels[:, ::-1]
        left, upper = view.corner
        pixels = pixels[upper : upper + shape[0], left : left + shape[1]]
        found = np.full((*shape, 3), self._pictures.fill, np.uint8)
        found[: pixels.shape[0], : pixels.shape[1]] = pixels
        return found


def _resized(picture: Any, size: tuple[int, int]) -> Any:
    """``picture`` at ``size`` (width, height): what shrinks as means of areas, what grows bilinearly.

    OpenCV's bilinear resizing has no antialiasing, and its means of areas are for shrinking alone.
    """
    for wide, high, how in (
        (min(size[0], picture.shape[1]), min(size[1], picture.shape[0]), _AREA),
        (*size, _LINEAR),
    ):
        if (high, wide) != picture.shape[:2]:
            picture = mx.image.imresize(picture, wide, high, interp=how)
    return picture


def _stack(context: Any, found: list[U8]) -> Any:
    return mx.nd.array(np.stack(found), ctx=context, dtype="uint8")


class Reader:
    """See :class:`suite.common.image_reader.Reader`. Worker processes are kept from run to run.

    Many of them share a batch, since no more than ``ahead`` whole batches may be in the making.
    """

    def __init__(self, pictures: Pictures, batch: int, threads: int, ahead: int) -> None:
        parts = min(batch, -(-_EACH * threads // ahead)) if ahead else 1
        workers = min(threads, ahead * parts // _EACH)
        self._parts = Parts(parts)
        if workers:
            shorten_sockets()
            # Gluon has no hook of its own in which a process could bind itself to this one.
            os.register_at_fork(after_in_child=partial(die_with, os.getpid()))
        self._loader = DataLoader(
            _Pictures(pictures),
            batch_sampler=self._parts,
            num_workers=workers,
            prefetch=_EACH * workers - 1 if workers else 0,  # one more is begun as a part is asked for
            batchify_fn=partial(_stack, mx.Context("cpu_shared", 0) if workers else mx.cpu()),
            timeout=_WAIT_S,
        )

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`."""
        self._parts.begin(requests)
        return self._whole(iter(self._loader))

    def _whole(self, parts: Iterator[Any]) -> Iterator[U8]:
        for part in parts:
            found = [part, *islice(parts, self._parts.counts.popleft() - 1)]
            yield np.concatenate([one.asnumpy() for one in found])
