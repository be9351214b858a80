"""An image reader with PyTorch's DataLoader: worker processes that decode and resize with Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from os import getpid
from typing import Any

from torch.utils.data import DataLoader, Dataset

from suite.common.image_reader import U8, Images, Request
from suite.common.loader_parts import QUEUED, PartItem, Parts, first_error, parts_and_workers
from suite.common.pillow_images import DECODER, render
from suite.common.processes import die_with, shorten_sockets
from suite.contract import BadData

__all__ = ["DECODER", "Reader"]


class _ImageDataset(Dataset):
    """Writes one image to the shared memory of ``parts``; a BadData error is returned as a value.

    A raised exception would reach the main process inside the text of a worker's trace, without the file.
    """

    def __init__(self, images: Images, parts: Parts) -> None:
        self._images, self._parts = images, parts

    def __getitem__(self, at: PartItem) -> BadData | None:
        try:
            self._parts.room(at)[:] = render(self._images, at.item, at.shape)
        except BadData as error:
            return error
        return None


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
        self._parts = Parts(batch, parts, workers)
        self._loader: DataLoader = DataLoader(
            _ImageDataset(images, self._parts),
            batch_sampler=self._parts,
            num_workers=workers,
            collate_fn=first_error,
            **settings,
        )

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`."""
        self._parts.begin(requests)
        return self._parts.join(iter(self._loader))


def _bind_to_parent(parent: int, number: int) -> None:
    """Make a new worker process end with its parent."""
    del number
    die_with(parent)
