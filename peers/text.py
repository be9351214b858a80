"""A text in the format of text8 whose words follow Zipf's law, read by both gensim and the suite."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suite.common.stream import Stream
from suite.workloads.word2vec import data, spec
from suite.workloads.word2vec.text import FILE


def spelled(rank: int) -> str:
    """A distinct word of letters for each ``rank`` from 0 on."""
    letters = ""
    while rank >= 0:
        letters = chr(ord("a") + rank % 26) + letters
        rank = rank // 26 - 1
    return letters


def write(folder: Path, scale: str, variant: str, words: int) -> None:
    """Write ``folder/text8``: ``words`` drawn words, and each of the vocabulary often enough to count."""
    vocabulary = spec.dimensions(scale, variant).vocabulary
    drawn, _ = data.zipf(vocabulary, words)
    ids = np.concatenate((drawn, np.repeat(np.arange(vocabulary, dtype=np.int32), spec.MIN_COUNT)))
    order = Stream("peers", "text", vocabulary, words).permutation(len(ids))
    names = [spelled(rank) for rank in range(vocabulary)]
    (folder / FILE).write_text(" " + " ".join(names[rank] for rank in ids[order]))
