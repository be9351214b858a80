"""Scores of raw predictions: known values, ties, and files that must be refused."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from suite.datasets import prepare, scores
from suite.datasets.errors import ScoringError
from suite.datasets.scores import bleu, hr10

USERS = 943


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare.prepare("wmt16-mini", tmp_path_factory.mktemp("data")).path


def _ranked(*ranks: int) -> np.ndarray:
    """Scores whose positive has the given ranks (0 is best)."""
    scores = np.tile(np.arange(100, dtype=np.float32), (len(ranks), 1))
    for row, rank in enumerate(ranks):
        scores[row, 0] = 99.5 - rank
    return scores


def test_ranking_metrics_of_known_ranks() -> None:
    found = hr10.ranking(_ranked(0, 9, 10, 99))
    assert found.metric == "hr10"
    assert found.value == 0.5
    assert math.isclose(found.others["ndcg10"], (1 + math.log(2) / math.log(11)) / 4)


def test_ties_count_against_the_positive() -> None:
    assert hr10.ranking(np.zeros((5, 100), np.float32)).value == 0.0
    scores = _ranked(9)
    scores[0, 0] = scores[0, 90]  # one more negative reaches it
    assert hr10.ranking(scores).value == 0.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_must_be_finite(value: float) -> None:
    scores = _ranked(0, 1)
    scores[1, 5] = value
    with pytest.raises(ScoringError, match="finite"):
        hr10.ranking(scores)


def _save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_ncf_is_scored_from_a_file(tmp_path: Path) -> None:
    path = _save(tmp_path / "p.npz", scores=_ranked(*[0] * (USERS - 1), 50))
    found = scores.score("ncf", tmp_path, path, "mini")
    assert math.isclose(found.value, (USERS - 1) / USERS)
    with pytest.raises(ScoringError, match="6040"):
        scores.score("ncf", tmp_path, path, "reference")


@pytest.mark.parametrize(
    "arrays",
    [
        {"scores": np.zeros((3, 100), np.float32)},
        {"scores": np.zeros((USERS, 99), np.float32)},
        {"scores": np.zeros((USERS, 100), np.int64)},
        {"scores": np.zeros(100, np.float32)},
        {"other": np.zeros((USERS, 100), np.float32)},
        {"scores": np.zeros((USERS, 100), np.float32), "more": np.zeros(1)},
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = _save(tmp_path / "p.npz", **arrays)
    with pytest.raises(ScoringError, match="expected") as caught:
        scores.score("ncf", tmp_path, path, "mini")
    assert caught.value.exit_code == 24


def test_predictions_are_never_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "exploded",))  # type: ignore[return-value]

    np.savez(tmp_path / "p.npz", scores=np.array([Bomb()], dtype=object))
    with pytest.raises(ScoringError, match="plain"):
        scores.score("ncf", tmp_path, tmp_path / "p.npz", "mini")
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ScoringError, match="plain"):
        scores.score("ncf", tmp_path, tmp_path / "raw.npz", "mini")
    assert not (tmp_path / "exploded").exists()


def test_size_is_limited_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.npz"
    np.savez_compressed(path, scores=np.zeros((USERS, 100), np.float32))
    monkeypatch.setattr(scores, "LARGEST", 1000)
    assert path.stat().st_size < 10_000
    with pytest.raises(ScoringError, match="at most 1000 bytes"):
        scores.score("ncf", tmp_path, path, "mini")
    with pytest.raises(ScoringError, match="plain"):
        scores.score("ncf", tmp_path, tmp_path / "absent.npz", "mini")


def _reference_tokens(folder: Path) -> np.ndarray:
    words = (folder / "vocab.bpe.32000").read_text().split()
    ids = {word: index + 4 for index, word in enumerate(words)}
    lines = (folder / "newstest2014.tok.bpe.32000.de").read_text().splitlines()
    tokens = np.full((len(lines), 40), 7, np.int32)  # rubbish after EOS must not count
    for row, line in enumerate(lines):
        sentence = [ids[word] for word in line.split()] + [bleu.EOS]
        tokens[row, : len(sentence)] = sentence
    return tokens


def test_reference_translation_scores_100_in_any_order(folder: Path, tmp_path: Path) -> None:
    tokens = _reference_tokens(folder)
    order = np.random.RandomState(0).permutation(len(tokens))
    path = _save(tmp_path / "p.npz", tokens=tokens[order], index=order)
    found = scores.score("gnmt", folder, path, "mini")
    assert found.metric == "bleu"
    assert math.isclose(found.value, 100.0)
    assert bleu.bleu(folder, tokens, np.roll(np.arange(len(tokens)), 1)).value < 40


def test_worse_translations_score_less(folder: Path) -> None:
    tokens = _reference_tokens(folder)
    index = np.arange(len(tokens))
    cut = tokens.copy()
    cut[:, 5] = bleu.EOS
    short = bleu.bleu(folder, cut, index)
    assert short.value < 70
    assert short.others["brevity_penalty"] < 1
    assert bleu.bleu(folder, np.full_like(tokens, 4), index).value < 5


def test_case_does_not_change_bleu(folder: Path, tmp_path: Path) -> None:
    for name in ("vocab.bpe.32000", "newstest2014.de"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "newstest2014.de").write_text((folder / "newstest2014.de").read_text().upper())
    tokens = _reference_tokens(folder)
    assert math.isclose(bleu.bleu(tmp_path, tokens, np.arange(len(tokens))).value, 100.0)


def test_references_end_at_newlines_alone(folder: Path, tmp_path: Path) -> None:
    """As the sentences that a model reads: a carriage return or a line separator within one ends nothing."""
    for name in ("vocab.bpe.32000", "newstest2014.de"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    text = (folder / "newstest2014.de").read_bytes()
    (tmp_path / "newstest2014.de").write_bytes("eins\rzwei\u2028\x85drei\n\n".encode() + text)
    tokens = _reference_tokens(folder)
    more = np.concatenate([tokens[:2], tokens])
    assert bleu.bleu(tmp_path, more, np.arange(len(more))).value > 50


def test_bad_translations_are_refused(folder: Path) -> None:
    tokens = _reference_tokens(folder)
    index = np.arange(len(tokens))
    with pytest.raises(ScoringError, match="exactly once"):
        bleu.bleu(folder, tokens[:-1], index[:-1])
    with pytest.raises(ScoringError, match="exactly once"):
        bleu.bleu(folder, tokens, np.zeros_like(index))
    for wrong in (-1, 72):
        changed = tokens.copy()
        changed[0, 0] = wrong
        with pytest.raises(ScoringError, match=r"ids in 0\.\.71"):
            bleu.bleu(folder, changed, index)


def test_detokenise_joins_subwords_and_punctuation() -> None:
    assert bleu.detokenise("ver@@ kauft .") == "verkauft."
    assert (
        bleu.detokenise("Er sagt : &quot; ja &quot; ( oft ) , Nord @-@ Süd")
        == 'Er sagt: " ja " (oft), Nord-Süd'
    )
    assert bleu.detokenise("Gär@@") == "Gär"
    assert bleu.detokenise("") == ""


def test_unknown_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match="Known are"):
        scores.score("nothing", tmp_path, tmp_path / "p.npz", "mini")


def test_metrics_have_the_names_of_the_specifications(folder: Path) -> None:
    from suite.workloads.gnmt import spec as gnmt
    from suite.workloads.ncf import spec as ncf

    assert hr10.ranking(_ranked(0)).metric == ncf.METRIC
    tokens = _reference_tokens(folder)
    assert bleu.bleu(folder, tokens, np.arange(len(tokens))).metric == gnmt.METRIC
