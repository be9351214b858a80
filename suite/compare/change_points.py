"""Where a history changed its level: binary segmentation, each split tested by permutations.

The split of a segment is where the means on its two sides differ most for their number (Sen and Srivastava,
"On tests for detecting change in mean", Annals of Statistics 3, 1975). Whether it is real is asked of the
segment in other orders: where nothing changed, every order is as likely (Matteson and James, "A nonparametric
approach for multiple change point analysis", JASA 109, 2014, test so as well). That holds its error rate for
any distribution, so that a history without a change shows one in no more than 1 of 100 looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

ERROR_RATE = 0.01
LEAST = 3  # values on either side of a change: two more than an outlier
ORDERS = 999
_SEED = 20261122


def change_points(values: Sequence[float]) -> list[int]:
    """The places of ``values``, in order of time, at which a new level begins; ascending, none at 0."""
    import numpy as np

    series = np.asarray(values, dtype=np.float64)
    chance = np.random.default_rng(_SEED)
    found: list[int] = []
    left = [(0, len(series))]
    while left:
        start, end = left.pop()
        at = _split(series[start:end], chance)
        if at is not None:
            found.append(start + at)
            left += [(start, start + at), (start + at, end)]
    return sorted(found)


def _split(series: NDArray[Any], chance: Any) -> int | None:
    """Where a segment splits; None where it is too short or its order says nothing."""
    import numpy as np

    if len(series) < 2 * LEAST:
        return None
    scores = _scores(series[None, :])
    best = scores.max()
    shuffled = chance.permuted(np.tile(series, (ORDERS, 1)), axis=1)
    as_good = int((_scores(shuffled).max(axis=1) >= best * (1 - 1e-12)).sum())
    return LEAST + int(scores.argmax()) if (1 + as_good) / (1 + ORDERS) <= ERROR_RATE else None


def _scores(rows: NDArray[Any]) -> NDArray[Any]:
    """For each row and each place that leaves LEAST values on both sides: the difference, weighted."""
    import numpy as np

    count = rows.shape[1]
    before = np.arange(LEAST, count - LEAST + 1)
    sums = (rows - rows.mean(axis=1, keepdims=True)).cumsum(axis=1)[:, before - 1]
    scores: NDArray[Any] = np.abs(sums) * np.sqrt(count / (before * (count - before)))
    return scores
