"""The peak memory over the batch, fitted to measured cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by m0 + m1 B d, from measured peaks; ``margin`` is the largest relative error above the line."""

    base: float
    per_sample: float
    margin: float

    @classmethod
    def fitted(cls, batches: Sequence[int], peaks: Sequence[int]) -> Memory | None:
        """The line through ``peaks``; None without any. One batch alone gives a constant."""
        if not peaks:
            return None
        x, y = np.array(batches, dtype=np.float64), np.array(peaks, dtype=np.float64)
        if len(set(batches)) == 1:
            return cls(float(y.max()), 0.0, 0.0)
        found = least_squares(
            lambda theta: (theta[0] + theta[1] * x / x.max()) * y.max() / y - 1,
            (0.5, 0.5),
            bounds=(0, np.inf),
        )
        base, per_sample = found.x[0] * y.max(), found.x[1] * y.max() / x.max()
        return cls(base, per_sample, max(0.0, float(np.max(y / (base + per_sample * x) - 1))))

    def upper(self, batch: int) -> float:
        """The upper bound for ``batch``: the line, its largest error, and 5 %."""
        return (self.base + self.per_sample * batch) * (1 + self.margin) * 1.05
