"""The generator of ``ml-1m-mini``: ratings of 943 users for 1,000 items in the format of MovieLens-1M.

Users and items have six latent factors. A user's score of an item is their product, less a penalty that grows
with the logarithm of the item's popularity rank, plus Gumbel noise; the user rates a log-normal number of the
best items by score, in random order of time. So popularity explains some of the held-out items and the
factors explain most of the rest: a model of popularity alone stays far below the target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.datasets import fixed

NAME = "ml-1m-mini"
VERSION = "ml-1m-mini/1"
SEED = 1
USERS = 943
ITEMS = 1000
FACTORS = 6
FEWEST, MOST, MEDIAN = 20, 400, 60

# Numbers with 16 fractional bits.
_AFFINITY = 93642  # 3.5 / sqrt(FACTORS)
_POPULARITY = 39322  # 0.6
_SPREAD = 47274  # 0.5 / ln 2: standard deviation of log2(number of ratings)
_FIRST_TIME = 956703932  # the first second of MovieLens-1M
_LAST_START = 60 * 24 * 3600 * 12
_LONGEST_GAP = 3600


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, "users": USERS, "items": ITEMS, "factors": FACTORS}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """The files by name: ``ratings.dat`` with lines ``UserID::MovieID::Rating::Timestamp``, ids from 1."""
    affinity = _affinities(seed)
    chosen = _chosen(seed, affinity)
    counts = _counts(seed)
    lines: list[str] = []
    for user in range(USERS):
        items = chosen[user, : counts[user]]
        items = items[Stream(VERSION, "order", seed, user).permutation(len(items))]
        ratings = _ratings(affinity[user, items])
        gaps = Stream(VERSION, "gaps", seed, user).integers(_LONGEST_GAP, len(items)) + 1
        start = Stream(VERSION, "start", seed).integers(_LAST_START, 1, user)[0]
        times = _FIRST_TIME + start + np.cumsum(gaps)
        rows = zip(items.tolist(), ratings.tolist(), times.tolist(), strict=True)
        lines += [f"{user + 1}::{item + 1}::{rating}::{time}\n" for item, rating, time in rows]
    return {"ratings.dat": "".join(lines).encode("ascii")}


def _affinities(seed: int) -> fixed.I64:
    """[USERS, ITEMS] scaled product of the latent factors."""
    users = fixed.normal(Stream(VERSION, "users", seed), USERS * FACTORS).reshape(USERS, FACTORS)
    items = fixed.normal(Stream(VERSION, "items", seed), ITEMS * FACTORS).reshape(ITEMS, FACTORS)
    product = np.zeros((USERS, ITEMS), np.int64)
    for factor in range(FACTORS):
        product += users[:, factor, None] * items[None, :, factor] >> fixed.BITS
    return product * _AFFINITY >> fixed.BITS


def _chosen(seed: int, affinity: fixed.I64) -> NDArray[np.int64]:
    """[USERS, MOST] each user's best items, best first."""
    rank = Stream(VERSION, "popularity", seed).permutation(ITEMS) + 1
    logarithm = fixed.log2(rank) * fixed.LN_2 >> fixed.BITS
    noise = fixed.gumbel(Stream(VERSION, "noise", seed), USERS * ITEMS).reshape(USERS, ITEMS)
    score = affinity - (logarithm * _POPULARITY >> fixed.BITS)[None, :] + noise
    return np.argsort(-score, axis=1, kind="stable")[:, :MOST].astype(np.int64)


def _counts(seed: int) -> list[int]:
    """How many items each user rates: log-normal, found by looking up its logarithm among the integers'."""
    table = fixed.log2(np.arange(1, MOST + 1, dtype=np.int64))
    exponent = fixed.normal(Stream(VERSION, "counts", seed), USERS) * _SPREAD >> fixed.BITS
    count = np.searchsorted(table, exponent + table[MEDIAN - 1])
    return [min(MOST, max(FEWEST, int(value))) for value in count]


def _ratings(affinity: fixed.I64) -> fixed.I64:
    """One to five stars by the product alone."""
    edges = np.array([5, 11, 20, 31], np.int64) * fixed.ONE // 4
    return np.searchsorted(edges, affinity, side="right").astype(np.int64) + 1
