"""Synthetic data of one batch: what every step is given, staged once."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


class OneBatch:
    """The steps of :class:`suite.contract.Data` where a subclass makes the one ``_batch``."""

    steps_per_epoch = 1
    _batch: Arrays

    def slot(self, step: int) -> int:
        """Always the only batch."""
        del step
        return 0

    def batch(self, step: int) -> Arrays:
        """The only batch, whatever ``step``."""
        del step
        return dict(self._batch)
