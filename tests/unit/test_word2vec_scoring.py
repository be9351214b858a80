"""Analogies: known answers, ties, case, unknown words, files that must be refused; the planted ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suite.datasets import scores, text8_mini
from suite.datasets.errors import ScoringError
from suite.datasets.scores import analogy
from suite.workloads.word2vec import text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("text8-mini")
    for name, content in text8_mini.generate().items():
        (root / name).write_bytes(content)
    return root


def words_of(folder: Path) -> list[str]:
    return [word.decode() for word in text.vocabulary(text.read_words(folder / "text8"), 5)]


def planted(folder: Path, rows: float, columns: float) -> np.ndarray:
    """Vectors that encode the row, the column, or both, of each cell."""
    names = text8_mini._names(text8_mini.SEED)
    rank_of = {name: number for number, name in enumerate(names)}
    noise = np.random.RandomState(1).standard_normal((len(names), 50)) * 0.01
    for at, name in enumerate(words_of(folder)):
        if rank_of[name] < text8_mini.CELLS:
            row, column = divmod(rank_of[name], text8_mini.COLUMNS)
            noise[at, row] += rows
            noise[at, text8_mini.ROWS + column] += columns
    return noise.astype(np.float32)


def scored(folder: Path, vectors: np.ndarray, tmp_path: Path) -> scores.Score:
    np.savez(tmp_path / "p.npz", vectors=vectors)
    return scores.score("word2vec", folder, tmp_path / "p.npz", "mini")


def test_analogies_need_rows_and_columns(folder: Path, tmp_path: Path) -> None:
    found = scored(folder, planted(folder, 1, 1), tmp_path)
    assert (found.metric, found.value) == ("analogy", 1.0)
    assert found.others == {"asked": 1000, "skipped": 0}
    assert scored(folder, planted(folder, 1, 0), tmp_path).value < 0.12
    assert scored(folder, planted(folder, 0, 1), tmp_path).value < 0.12
    assert scored(folder, planted(folder, 0, 0), tmp_path).value < 0.02


def test_equal_vectors_score_zero(folder: Path, tmp_path: Path) -> None:
    assert scored(folder, np.ones((1300, 8), np.float32), tmp_path).value == 0.0
    assert scored(folder, np.zeros((1300, 8), np.float32), tmp_path).value == 0.0


def test_question_words_are_excluded_from_answers() -> None:
    vectors = np.array([[1, 0], [1, 0.1], [1, 0.2], [1, 0.35], [-1, 0]])
    assert analogy.accuracy(vectors, np.array([[0, 1, 2, 3]])) == 1.0
    assert analogy.accuracy(vectors, np.array([[0, 1, 2, 2]])) == 0.0


def test_case_is_folded_and_unknown_words_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "questions-words.txt"
    path.write_text(": capitals\nAthens Greece Oslo Norway\n\nathens GREECE Rome Italy\n")
    words = {"athens": 3, "greece": 1, "oslo": 0, "norway": 2, "rome": 4}
    asked, skipped = analogy.read_questions(path, words)
    assert asked.tolist() == [[3, 1, 0, 2]]
    assert skipped == 1
    path.write_text("a b c\n")
    with pytest.raises(ScoringError, match="line 1: expected four words, found 'a b c'"):
        analogy.read_questions(path, words)
    path.write_text("a b c d\n")
    with pytest.raises(ScoringError, match="words are all known"):
        analogy.read_questions(path, words)


def test_incomplete_or_non_finite_predictions_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match="one for each of 1300 words, found 1299"):
        scored(folder, np.ones((1299, 4)), tmp_path)
    vectors = np.ones((1300, 4))
    vectors[7, 2] = np.nan
    with pytest.raises(ScoringError, match="finite"):
        scored(folder, vectors, tmp_path)


def test_generated_text_has_format_of_text8(folder: Path) -> None:
    content = (folder / "text8").read_bytes()
    assert content.startswith(b" ")
    assert not content.endswith((b" ", b"\n"))
    assert len(content.split()) == text8_mini.TOKENS
    assert len(words_of(folder)) == text8_mini.WORDS == 1300
    lines = (folder / "questions-words.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith(":")] == [": rows", ": columns"]
    questions = [line.split() for line in lines if not line.startswith(":")]
    assert all(len(set(words)) == 4 for words in questions)
    assert all(word[0].isupper() for words in questions for word in words)
