"""The generator of ``ptb-mini``: text of a Markov chain in the files of the Penn Treebank benchmark.

Every word has six possible successors with fixed odds, popular words more often among them, and ends its line
with odds of 1 to 19; a line begins with one of six words. So the best possible perplexity is that of the
chain (:func:`best_perplexity`). A model of word frequencies alone is far above it; a model below it was
trained on the test text.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.datasets import fixed

NAME = "ptb-mini"
VERSION = "ptb-mini/1"
SEED = 1
WORDS = 399  # and <eos>
SUCCESSORS = 6
TOKENS = {"train": 100_050, "valid": 5_000, "test": 10_000}  # at least; the last line is completed

_ODDS = 1 << 20  # odds of a state sum up to this
_END = _ODDS // 20
_LEAST = fixed.ONE // 4  # added to every weight, so that no successor is too rare to learn
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, "words": WORDS, "successors": SUCCESSORS, **TOKENS}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """``ptb.train.txt``, ``ptb.valid.txt`` and ``ptb.test.txt``; a line begins and ends with a space."""
    return {f"ptb.{split}.txt": _text(seed, split, count) for split, count in TOKENS.items()}


def chain(seed: int = SEED) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Successors and the upper ends of their odds, both [1 + WORDS, 1 + SUCCESSORS]; state 0 is <eos>.

    The last column is the end of the line, which never follows state 0.
    """
    states = 1 + WORDS
    rank = Stream(VERSION, "popularity", seed).permutation(WORDS) + 1
    score = fixed.gumbel(Stream(VERSION, "successors", seed), states * WORDS).reshape(states, WORDS)
    score -= (fixed.log2(rank) * fixed.LN_2 >> fixed.BITS + 1)[None, :]  # by the root of the rank
    # Every word is the successor of at least one other, because it might never occur otherwise.
    score[np.arange(1, states), Stream(VERSION, "reached", seed).permutation(WORDS)] = 1 << 40
    successors = np.argsort(-score, axis=1, kind="stable")[:, :SUCCESSORS] + 1
    uniform = np.maximum(Stream(VERSION, "odds", seed).integers(1 << 32, states * SUCCESSORS), 1)
    weights = ((32 << fixed.BITS) - fixed.log2(uniform) + _LEAST).reshape(states, SUCCESSORS)
    total, room = np.cumsum(weights, axis=1), np.full((states, 1), _ODDS - _END)
    room[0] = _ODDS
    ends = total * room // total[:, -1:]
    last = np.zeros((states, 1), np.int64)
    return np.hstack((successors, last)), np.hstack((ends, last + _ODDS))


def best_perplexity() -> float:
    """The exponential of the chain's entropy rate in nats: the least perplexity of a model on a long text."""
    successors, ends = chain()
    odds = np.diff(ends, axis=1, prepend=0) / _ODDS
    share = np.full(len(odds), 1 / len(odds))
    for _ in range(1000):
        share = np.bincount(successors.ravel(), (share[:, None] * odds).ravel(), len(odds))
    logarithm = np.log(np.where(odds > 0, odds, 1))
    return math.exp(-float((share[:, None] * odds * logarithm).sum()))


def _text(seed: int, split: str, count: int) -> bytes:
    successors, ends = (array.tolist() for array in chain(seed))
    names = [_word(index) for index in range(WORDS)]
    draws = iter(Stream(VERSION, "text", split, seed).integers(_ODDS, count + 10_000).tolist())
    lines: list[str] = []
    written = 0
    while written < count:
        state = 0
        words: list[str] = []
        while not words or state:
            state = successors[state][bisect_right(ends[state], next(draws))]
            words.append(names[state - 1] if state else "\n")
        lines.append(f" {' '.join(words)}")
        written += len(words)
    return "".join(lines).encode("ascii")


def _word(index: int) -> str:
    """A word of at most three syllables, different for every index."""
    syllables: list[str] = []
    rest = index
    while rest or not syllables:
        rest, at = divmod(rest, len(_CONSONANTS) * len(_VOWELS))
        syllables.append(_CONSONANTS[at // len(_VOWELS)] + _VOWELS[at % len(_VOWELS)])
    return "".join(syllables)
