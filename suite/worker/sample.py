"""A few values of a batch, taken when a step reads it: cheap enough for the window, and likely to differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.image_reader import DeviceImages

VALUES = 512  # of each array; about 20 microseconds


@dataclass(frozen=True, slots=True)
class Sample:
    """Evenly spaced values of each array of a batch; the first index depends on the step.

    A change of a contiguous part of 1/512 of an array or more, such as one image of 256, changes a value. Of
    images on a GPU it is the row of each that their reader copied.
    """

    step: int
    parts: dict[str, int]  # hashes of type, shape and values: the values of 10,000 steps take too much

    @classmethod
    def of(cls, step: int, arrays: dict[str, NDArray[Any]]) -> Sample:
        """The sample of the batch of ``step``; keeps a hash of the sampled values, for any memory layout."""
        return cls(step, {name: _part(step, array) for name, array in arrays.items()})

    def first_difference(self, arrays: dict[str, NDArray[Any]]) -> str | None:
        """The name of the first array that differs from the sample; None if all agree."""
        parts = Sample.of(self.step, arrays).parts
        names = sorted({*self.parts, *parts})
        return next((name for name in names if self.parts.get(name) != parts.get(name)), None)


def _part(step: int, array: NDArray[Any] | DeviceImages) -> int:
    if isinstance(array, DeviceImages):  # its values are on a GPU
        return hash((array.dtype.str, array.shape, array.row.tobytes()))
    stride = max(1, array.size // VALUES)
    return hash((array.dtype.str, array.shape, np.asarray(array.flat[step % stride :: stride]).tobytes()))
