"""How often a recommender ranks the user's next item among the first ten of a hundred."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.datasets.errors import ScoringError
from suite.datasets.scores import Predictions, Score

ARRAYS = {"scores": ("f", 2)}
CANDIDATES = 100  # the held-out positive and 99 negatives
TOP = 10


def score(predictions: Predictions) -> Score:
    """``scores`` [users, 100], column 0 the held-out item, of every user of the scale's dataset."""
    spec: Any = workloads.specification(predictions.workload)
    scores, users = (
        predictions.arrays["scores"],
        spec.dimensions(predictions.scale, spec.VARIANTS[predictions.scale][0]).users,
    )
    if len(scores) != users:
        raise ScoringError(f"scores: expected all {users} users, found {len(scores)}.")
    return ranking(scores)


def ranking(scores: NDArray[np.floating[Any]]) -> Score:
    """HR@10 and NDCG@10 of ``scores`` [users, 100], the positive in column 0 and last in every tie.

    He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1, with the tie rule of MLPerf: a model
    with equal scores for all items gets 0, not 1.
    """
    if scores.ndim != 2 or scores.shape[1] != CANDIDATES:
        raise ScoringError(f"scores: expected [users, {CANDIDATES}], found {list(scores.shape)}.")
    if not np.isfinite(scores).all():
        raise ScoringError("scores: expected finite numbers, found NaN or infinity.")
    rank = (scores[:, 1:] >= scores[:, :1]).sum(axis=1)
    hit = rank < TOP
    gain = np.where(hit, 1.0 / np.log2(rank + 2.0), 0.0)
    return Score("hr10", float(hit.mean()), {"ndcg10": float(gain.mean())})
