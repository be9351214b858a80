"""The robust deviation of a set of figures, and the factor k of the thresholds of baselines.

``FACTORS`` and ``SIBLING_FACTORS`` are made by ``python -m tools.baseline_factors``: simulated so that a
machine like all others is called slow or fast in at most 1 % of the comparisons, whatever the number of
series (:data:`ALPHA`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from suite.compare.baseline_factors import FACTORS, SIBLING_FACTORS, TESTS

ALPHA = 0.01  # the probability of at least one false alarm among all series of one comparison


def robust_deviation(figures: Any) -> Any:
    """The deviation of figures from their median, along the last axis, without the fifth that deviates most.

    Of n figures n // 5 are left out, so that a few bad ones do not hide the next. It underestimates the
    deviation of normal figures; the factors were simulated with it and make up for that.
    """
    values = np.asarray(figures, dtype=float)
    count = values.shape[-1]
    apart = np.sort(np.abs(values - np.median(values, axis=-1, keepdims=True)), axis=-1)
    kept = apart[..., : count - count // 5]
    return np.sqrt(np.mean(kept**2, axis=-1))


def factor(count: int, tests: int) -> float:
    """The factor k for one of ``tests`` series, compared with ``count`` figures, at least five."""
    return _look_up(FACTORS, count, tests)


def sibling_factor(count: int, tests: int) -> float:
    """The same for one of ``tests`` figures of ``count`` equal devices of one host, at least two."""
    return _look_up(SIBLING_FACTORS, count, tests)


def _look_up(table: Mapping[int, tuple[float, ...]], count: int, tests: int) -> float:
    """The factor in the row of the next smaller count and the column of the next larger number of tests.

    Both err on the side of fewer alarms.
    """
    rows = [row for row in table if row <= count]
    if not rows or not 1 <= tests <= TESTS[-1]:
        raise ValueError(
            f"factor: expected at least {min(table)} figures and 1 to {TESTS[-1]} tests, "
            f"found {count} and {tests}"
        )
    column = next(at for at, most in enumerate(TESTS) if tests <= most)
    return table[max(rows)][column]
