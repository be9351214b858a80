"""An image reader with PyTorch's DataLoader: worker processes that decode and resize with Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from os import getpid
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from suite.common.image_reader import QUEUED, U8, Images, Parts, Request, ShapedItem, parts_and_workers
from suite.common.pillow_images import DECODER, render
from suite.contract import BadData
from suite.frameworks.common import die_with, shorten_sockets

__all__ = ["DECODER", "Reader"]


class _ImageDataset(Dataset):
    """One image as a tensor; a BadData error is returned as a value.

    A raised exception would reach the main process inside the text of a worker's trace, without the file.
    """

    def __init__(self, images: Images) -> None:
        self._images = images

    def __getitem__(self, item: ShapedItem) -> Any:
        try:
            return torch.from_numpy(np.array(render(self._images, *item), order="C"))
        except BadData as error:
            return error


def _stack(results: list[Any]) -> Any:
    """The tensors of a part as one, in shared memory; or the first error among them."""
    return next((one for one in results if isinstance(one, BadData)), None) or torch.stack(results)


class Reader:
    """See :class:`suite.common.image_reader.Reader`. Worker processes live through all runs."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        parts, workers = parts_and_workers(batch, threads, ahead)
        settings: dict[str, Any] = {}
        if workers:
            shorten_sockets()
            settings = {
                "prefetch_factor": QUEUED,
                "persistent_workers": True,
                "multiprocessing_context": "fork",
                "worker_init_fn": partial(_bind_to_parent, getpid()),
            }
        self._parts = Parts(parts)
        self._loader: DataLoader = DataLoader(
            _ImageDataset(images),
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
            batch = [part, *islice(parts, self._parts.counts.popleft() - 1)]
            if error := next((one for one in batch if isinstance(one, BadData)), None):
                raise error
            # A copy: shared memory is scarce, and each tensor in it holds a file descriptor.
            yield np.concatenate([one.numpy() for one in batch])


def _bind_to_parent(parent: int, number: int) -> None:
    """Make a new worker process end with its parent."""
    del number
    die_with(parent)
