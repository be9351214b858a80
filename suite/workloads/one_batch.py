"""Synthetic data that consist of one batch, staged once and used by every step."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream

Arrays = dict[str, NDArray[Any]]


class OneBatch:
    """A base for :class:`suite.contract.Data` with one batch, which a subclass stores in ``_batch``."""

    steps_per_epoch = 1
    _batch: Arrays

    def slot(self, step: int) -> int:
        """Slot 0: there is one batch."""
        del step
        return 0

    def batch(self, step: int) -> Arrays:
        """The batch; the same for every ``step``."""
        del step
        return dict(self._batch)

    def evaluation(self) -> Iterator[Arrays]:
        """Always ValueError: random data have no quality."""
        raise ValueError("quality: expected data=real, found data=synthetic; random data have no quality")


def random_bytes(shape: tuple[int, ...], first: int, *key: str | int) -> NDArray[np.uint8]:
    """Rows ``first`` to ``first + shape[0]`` of the random bytes of ``key``, whose rows are ``shape[1:]``.

    Draws only these rows, eight bytes at a time.
    """
    start, size = first * prod(shape[1:]), prod(shape)
    skipped = start % 8
    words = Stream(*key).bits(-(-(skipped + size) // 8), start // 8).astype("<u8")
    return words.view(np.uint8)[skipped : skipped + size].reshape(shape)
