"""The generator of ``text8-mini``: 200,000 words in the format of text8 that contain analogies.

Six hundred words are the cells of a grid of 30 rows and 20 columns. Each occurrence of a cell is among two of
the twelve words of its row and two of its column, in random order; four times in five one of a hundred
function words follows a word, by Zipf's law. Only its neighbours characterise a cell, so that

    cell(a, b) - cell(a, d) + cell(c, d) = cell(c, b)

holds only for the vectors of a model that has learnt rows and columns: a model of rows alone, or of columns
alone, answers fewer than one question in eight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream

NAME = "text8-mini"
VERSION = "text8-mini/1"
SEED = 1
TOKENS = 200_000
ROWS, COLUMNS = 30, 20
COMPANY = 12  # words that accompany a row, or a column
FUNCTION_WORDS = 100
QUESTIONS = 500  # of each of the two kinds

CELLS = ROWS * COLUMNS
WORDS = CELLS + (ROWS + COLUMNS) * COMPANY + FUNCTION_WORDS
_CONSONANTS, _VOWELS = "bdfghklmnprstvz", "aeiou"

Ids = NDArray[np.int64]


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, "tokens": TOKENS, "rows": ROWS, "columns": COLUMNS, "words": WORDS}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """The files by name: ``text8``, one line of [a-z ], and ``questions-words.txt``, four words a line."""
    names = _names(seed)
    text = " ".join(names[word] for word in _tokens(seed).tolist())
    lines: list[str] = []
    for section in ("rows", "columns"):
        lines += [f": {section}\n", *_questions(seed, section, names)]
    return {"text8": f" {text}".encode("ascii"), "questions-words.txt": "".join(lines).encode("ascii")}


def _names(seed: int) -> list[str]:
    """A spelling of two syllables for each word, in random order."""
    syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
    order = Stream(VERSION, "names", seed).permutation(len(syllables) ** 2)[:WORDS].tolist()
    return [syllables[at // len(syllables)] + syllables[at % len(syllables)] for at in order]


def _tokens(seed: int) -> Ids:
    """Word numbers of the text: cells first, then the company of rows and of columns, function words last."""
    groups = TOKENS // 5

    def draw(purpose: str, bound: int, count: int = groups) -> Ids:
        return Stream(VERSION, purpose, seed).integers(bound, count)

    cell = draw("cell", CELLS)
    row, column = cell // COLUMNS, cell % COLUMNS
    members = [cell]
    for purpose, line, first in (("row", row, CELLS), ("column", column, CELLS + ROWS * COMPANY)):
        one = draw(f"{purpose} first", COMPANY)
        other = (one + 1 + draw(f"{purpose} second", COMPANY - 1)) % COMPANY
        members += [first + line * COMPANY + one, first + line * COMPANY + other]
    group = np.stack(members, axis=1)
    order = Stream(VERSION, "shuffle", seed).bits(group.size).reshape(group.shape)
    content = np.take_along_axis(group, np.argsort(order, axis=1, kind="stable"), axis=1).reshape(-1)
    followed = draw("followed", 5, content.size) < 4
    pairs = np.stack((content, np.where(followed, _function_words(seed, content.size), -1)), axis=1)
    tokens: Ids = pairs.reshape(-1)
    return tokens[tokens >= 0][:TOKENS]


def _function_words(seed: int, count: int) -> Ids:
    """Word numbers by Zipf's law: the r-th is drawn with a weight of 1 / r."""
    edges = np.cumsum((1 << 20) // np.arange(1, FUNCTION_WORDS + 1))
    drawn = Stream(VERSION, "function", seed).integers(int(edges[-1]), count)
    return WORDS - FUNCTION_WORDS + np.searchsorted(edges, drawn, side="right").astype(np.int64)


def _questions(seed: int, section: str, names: list[str]) -> list[str]:
    """Lines ``A B C D``, A to B as C to D, capitalised as names are in the published questions."""
    a, c = _two(seed, f"{section} rows", ROWS)
    b, d = _two(seed, f"{section} columns", COLUMNS)
    corners = [(a, b), (a, d), (c, b), (c, d)]
    if section == "columns":  # the change from A to B is then one of row
        corners = [corners[0], corners[2], corners[1], corners[3]]
    numbers = np.stack([row * COLUMNS + column for row, column in corners], axis=1)
    return [" ".join(names[word].capitalize() for word in line) + "\n" for line in numbers.tolist()]


def _two(seed: int, purpose: str, bound: int) -> tuple[Ids, Ids]:
    """Two different numbers below ``bound`` for each question."""
    one = Stream(VERSION, purpose, seed).integers(bound, QUESTIONS)
    step = Stream(VERSION, purpose, seed, "other").integers(bound - 1, QUESTIONS)
    return one, (one + 1 + step) % bound
