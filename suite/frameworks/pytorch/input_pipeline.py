"""Pictures by PyTorch's DataLoader: worker processes that decode and resize with Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from os import getpid
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from suite.common.image_reader import U8, Parts, Pictures, Place, Request
from suite.common.pillow_images import DECODER, render
from suite.contract import BadData
from suite.frameworks.common import die_with, shorten_sockets

__all__ = ["DECODER", "Reader"]

_EACH = 2  # parts of batches that a worker has before it: DataLoader's own default


class _Pictures(Dataset):
    """One picture as a tensor; what is wrong with it is handed on as a value.

    An exception would reach the main process behind a trace of the worker's, its file's name lost.
    """

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def __getitem__(self, place: Place) -> Any:
        try:
            return torch.from_numpy(np.array(render(self._pictures, *place), order="C"))
        except BadData as error:
            return error


def _stack(found: list[Any]) -> Any:
    """The tensors of a part as one, in shared memory; or the first error among them."""
    return next((one for one in found if isinstance(one, BadData)), None) or torch.stack(found)


class Reader:
    """See :class:`suite.common.image_reader.Reader`. Worker processes are kept from run to run.

    Many of them share a batch, since no more than ``ahead`` whole batches may be in the making.
    """

    def __init__(self, pictures: Pictures, batch: int, threads: int, ahead: int) -> None:
        parts = min(batch, -(-_EACH * threads // ahead)) if ahead else 1
        workers = min(threads, ahead * parts // _EACH)
        settings: dict[str, Any] = {}
        if workers:
            shorten_sockets()
            settings = {
                "prefetch_factor": _EACH,
                "persistent_workers": True,
                "multiprocessing_context": "fork",
                "worker_init_fn": partial(_begin, getpid()),
            }
        self._parts = Parts(parts)
        self._loader: DataLoader = DataLoader(
            _Pictures(pictures),
            batch_sampler=self._parts,
            num_workers=workers,
            collate_fn=_stack,
            **settings,
        )

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`."""
        self._parts.begin(requests)
        return self._whole(iter(self._loader))

    def _whole(self, parts: Iterator[Any]) -> Iterator[U8]:
        for part in parts:
            found = [part, *islice(parts, self._parts.counts.popleft() - 1)]
            if error := next((one for one in found if isinstance(one, BadData)), None):
                raise error
            # A copy: shared memory is scarce, and each tensor in it holds a file descriptor.
            yield np.concatenate([one.numpy() for one in found])


def _begin(parent: int, number: int) -> None:
    """What each worker does first of all."""
    del number
    die_with(parent)
