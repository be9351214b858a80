"""Reads text8 and its vocabulary, for the batches and for the host's scoring of analogies."""

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
    """The words of ``path``, one line of [a-z ] as in Matt Mahoney's text8; BadData for any other byte."""
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
    """The counts of the words that occur at least ``least`` times, by descending count, then alphabetically.

    A word's id is its position in this order.
    """
    counts = [(word, count) for word, count in Counter(words).items() if count >= least]
    return dict(sorted(counts, key=lambda item: (-item[1], item[0])))


def numbered(words: list[bytes], known: dict[bytes, int]) -> NDArray[np.int32]:
    """The ids of ``words`` in order; words that are not ``known`` are left out, as in ``word2vec.c``."""
    ids = {word: index for index, word in enumerate(known)}
    numbers = np.fromiter((ids.get(word, -1) for word in words), np.int32, len(words))
    return numbers[numbers >= 0]
