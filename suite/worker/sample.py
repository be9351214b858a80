"""A few values of a batch, taken when a step is given it: cheap enough for the window, and hard to miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

VALUES = 512  # of each array; some 20 microseconds


@dataclass(frozen=True, slots=True)
class Sample:
    """Evenly spaced values of each array of a batch, beginning at a place that moves with the step.

    Whatever changes a stretch of 1/512 of an array or more, such as another image among 256, meets a value.
    """

    step: int
    parts: dict[str, tuple[str, tuple[int, ...], bytes]]  # type, shape, values

    @classmethod
    def of(cls, step: int, arrays: dict[str, NDArray[Any]]) -> Sample:
        """The sample of the batch of ``step``; copies nothing but the values, whatever the layout."""
        return cls(step, {name: _part(step, array) for name, array in arrays.items()})

    def other(self, arrays: dict[str, NDArray[Any]]) -> str | None:
        """The first array that is another one than when the sample was taken; None where all agree."""
        found = Sample.of(self.step, arrays).parts
        names = sorted({*self.parts, *found})
        return next((name for name in names if self.parts.get(name) != found.get(name)), None)


def _part(step: int, array: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    apart = max(1, array.size // VALUES)
    return array.dtype.str, array.shape, np.asarray(array.flat[step % apart :: apart]).tobytes()
