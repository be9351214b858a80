"""The analogy questions of word2vec: "Athens is to Greece as Baghdad is to ...", answered by vector sums."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import ScoringError
from suite.datasets.scores import Predictions, Score
from suite.workloads.word2vec import spec, text

ARRAYS = {"vectors": ("f", 2)}
QUESTIONS = "questions-words.txt"
_AT_ONCE = 256  # questions compared with every word in one product


def score(predictions: Predictions) -> Score:
    """Accuracy of ``vectors`` [n, D], one for each of the most frequent words, in the vocabulary's order."""
    folder, vectors = predictions.folder, predictions.arrays["vectors"]
    status = (folder / text.FILE).stat()
    words = _words(folder / text.FILE, status.st_size, status.st_mtime_ns)
    if len(vectors) != len(words):
        raise ScoringError(f"vectors: expected one for each of {len(words)} words, found {len(vectors)}.")
    asked, skipped = read_questions(folder / QUESTIONS, words)
    return Score("analogy", accuracy(vectors, asked), {"asked": len(asked), "skipped": skipped})


@lru_cache(maxsize=1)
def _words(path: Path, size: int, changed_ns: int) -> dict[str, int]:
    """The words that questions may contain, and their rows; read once while the file is unchanged."""
    del size, changed_ns
    known = text.vocabulary(text.read_words(path), spec.MIN_COUNT)
    return {word.decode("ascii"): row for row, word in enumerate(list(known)[: spec.QUESTION_WORDS])}


def read_questions(path: Path, words: dict[str, int]) -> tuple[NDArray[np.int64], int]:
    """Rows [n, 4] of the questions "A B C D", A to B as C to D, and how many were skipped.

    Case is folded, as text8 is; a question with an unknown word is skipped, as in ``compute-accuracy.c`` of
    word2vec. Lines that begin with a colon name a section. ScoringError for any other line.
    """
    found, skipped = [], 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        question = line.casefold().split()
        if line.startswith(":") or not question:
            continue
        if len(question) != 4:
            raise ScoringError(f"{path.name} line {number}: expected four words, found {line[:60]!r}.")
        rows = [words.get(word, -1) for word in question]
        if -1 in rows:
            skipped += 1
        else:
            found.append(rows)
    if not found:
        raise ScoringError(
            f"{path.name}: expected a question whose words are all known, found {skipped} without."
        )
    return np.array(found, np.int64), skipped


def accuracy(vectors: NDArray[np.floating[Any]], questions: NDArray[np.int64]) -> float:
    """Share of ``questions`` [n, 4] whose fourth word is nearest to B - A + C by cosine (3CosAdd).

    Levy and Goldberg, "Linguistic Regularities in Sparse and Explicit Word Representations", CoNLL 2014. The
    three words of a question are no answers to it, and a tie is no answer: equal vectors score 0.
    """
    if not np.isfinite(vectors).all():
        raise ScoringError("vectors: expected finite numbers, found NaN or infinity.")
    unit = vectors.astype(np.float32)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    right = 0
    for start in range(0, len(questions), _AT_ONCE):
        part = questions[start : start + _AT_ONCE]
        rows = np.arange(len(part))
        near = (unit[part[:, 1]] - unit[part[:, 0]] + unit[part[:, 2]]) @ unit.T
        answers = near[rows, part[:, 3]].copy()
        for column in range(4):
            near[rows, part[:, column]] = -np.inf
        right += int((answers > near.max(axis=1)).sum())
    return right / len(questions)
