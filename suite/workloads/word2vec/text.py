"""Reads text8 and its vocabulary: for the batches, and for the host, which scores by spelling."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suite.contract import BadData

FILE = "text8"
_LETTERS = b"abcdefghijklmnopqrstuvwxyz "
_SHOWN = 20


def read_words(path: Path) -> list[bytes]:
    """The words of ``path``: one line of [a-z ], as Matt Mahoney's text8; BadData for anything else."""
    text = path.read_bytes()
    strange = text.translate(None, _LETTERS)
    if strange:
        at = text.index(strange[:1])
        line = text.count(b"\n", 0, at) + 1
        shown = text[max(0, at - _SHOWN) : at + _SHOWN].decode("ascii", "backslashreplace")
        raise BadData(
            f"{path.name}: expected one line of a to z and spaces, found byte {strange[0]:#04x} "
            f"at {at} (line {line}, near {shown!r}); prepare the dataset again"
        )
    return text.split()


def vocabulary(words: list[bytes], least: int) -> dict[bytes, int]:
    """How often each word occurs that does so at least ``least`` times: most frequent first, then by letters.

    A word's id is its place.
    """
    counts = [(word, count) for word, count in Counter(words).items() if count >= least]
    return dict(sorted(counts, key=lambda item: (-item[1], item[0])))


def numbered(words: list[bytes], known: dict[bytes, int]) -> NDArray[np.int32]:
    """The ids of ``words`` in order; what is not ``known`` is left out, as ``word2vec.c`` does."""
    ids = {word: place for place, word in enumerate(known)}
    found = np.fromiter((ids.get(word, -1) for word in words), np.int32, len(words))
    return found[found >= 0]
