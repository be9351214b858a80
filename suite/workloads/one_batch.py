"""Synthetic data that consist of one batch, staged once and used by every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

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
