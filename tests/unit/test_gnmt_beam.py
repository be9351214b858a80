"""The beam search on toy decoders: against all possible translations, its ranking, its penalties."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt.beam import BeamSettings

WORDS = 32  # at least as many as the widest beam
A, B = 4, 5  # the words besides the specials


class Table:
    """A decoder whose log probabilities are a function of sentence and words so far; it keeps the words."""

    def __init__(
        self,
        scores: Callable[[int, tuple[int, ...]], NDArray[np.float64]],
        sentences: int,
        beams: int,
        attention: NDArray[np.float64] | None = None,
    ) -> None:
        self._scores, self._attention = scores, attention
        self._beams: list[list[tuple[int, ...]]] = [[()] * beams for _ in range(sentences)]

    def advance(
        self, tokens: NDArray[np.int32], parents: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """See ``beam.Decoder``."""
        count = tokens.shape[1]
        words = np.empty((*tokens.shape, count), np.int32)
        gains = np.empty(words.shape)
        for at, old in enumerate(self._beams):
            moved = [old[parent] for parent in parents[at]]
            self._beams[at] = [(*before, int(word)) for before, word in zip(moved, tokens[at], strict=True)]
            for position, prefix in enumerate(self._beams[at]):
                scores = self._scores(at, prefix[1:])
                words[at, position] = beam.ranked(scores)[:count]
                gains[at, position] = scores[words[at, position]]
        attention = (
            np.ones((*tokens.shape, 1)) if self._attention is None else self._attention[:, : len(tokens[0])]
        )
        return words, gains, attention


def random_scores(sentence: int, prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """Log probabilities of EOS and two words, of no other."""
    drawn = Stream("test", "beam", sentence, *prefix).unit(3) + 0.05
    scores = np.full(WORDS, -50.0)
    scores[[spec.EOS, A, B]] = np.log(drawn / drawn.sum())
    return scores


def rules(beams: int, limit: int = 4, length: float = 0.0, coverage: float = 0.0) -> BeamSettings:
    return BeamSettings(beams, limit, length, coverage)


def translations(limit: int) -> list[tuple[int, ...]]:
    """Every sequence that EOS ends within the limit, and those that it does not."""
    found: list[tuple[int, ...]] = []
    for length in range(limit):
        found += [(*words, spec.EOS) for words in itertools.product((A, B), repeat=length)]
    return [*found, *itertools.product((A, B), repeat=limit)]


def total(sentence: int, words: tuple[int, ...]) -> float:
    return math.fsum(random_scores(sentence, words[:at])[word] for at, word in enumerate(words))


def up_to_eos(row: NDArray[np.int32]) -> tuple[int, ...]:
    words = row.tolist()
    return tuple(words[: words.index(spec.EOS) + 1] if spec.EOS in words else words)


def test_search_without_pruning_finds_best_translation() -> None:
    count = 15
    wide, narrow = (
        beam.search(Table(random_scores, count, beams), count, rules(beams))
        for beams in (len(translations(4)), 1)
    )
    missed = 0
    for sentence in range(count):
        best = max(translations(4), key=lambda words: total(sentence, words))
        assert up_to_eos(wide[sentence]) == best
        missed += up_to_eos(narrow[sentence]) != best
    assert missed, "greedy finds them all: the table is too easy to show anything"


def test_single_beam_is_greedy() -> None:
    found = beam.search(Table(random_scores, 20, 1), 20, rules(1, limit=6))
    for sentence in range(20):
        words: tuple[int, ...] = ()
        while len(words) < 6 and spec.EOS not in words:
            words = (*words, int(random_scores(sentence, words).argmax()))
        assert up_to_eos(found[sentence]) == words
        assert not found[sentence][len(words) :].any(), "PAD after the end"


def test_ties_and_near_ties_go_to_the_smaller_index() -> None:
    grid = 1 / beam.GRID
    scores = np.array([[0.0, 1.0, 1.0, 1.0 + 0.4 * grid, 0.5, 1.0 + 0.6 * grid]])
    assert beam.ranked(scores).tolist() == [[5, 1, 2, 3, 4, 0]]


def ends_or_goes_on(sentence: int, prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """Ends at once for -1.0, or after word A for -1.1 in all."""
    scores = np.full(WORDS, -50.0)
    if not prefix:
        scores[[spec.EOS, A]] = -1.0, -0.6
    else:
        scores[spec.EOS] = -0.5
    return scores


@pytest.mark.parametrize(
    ("length", "expected"),
    # BOS and EOS count: 1.0 / (7/6)^p against 1.1 / (8/6)^p, equal at p = log(1.1) / log(8/7) = 0.714
    [(0.0, (spec.EOS,)), (0.6, (spec.EOS,)), (0.8, (A, spec.EOS)), (1.0, (A, spec.EOS))],
)
def test_length_normalisation_follows_the_formula(length: float, expected: tuple[int, ...]) -> None:
    found = beam.search(Table(ends_or_goes_on, 1, 2), 1, rules(2, length=length))
    assert up_to_eos(found[0]) == expected


@pytest.mark.parametrize(("coverage", "expected"), [(0.0, (spec.EOS,)), (0.1, (A, spec.EOS))])
def test_coverage_penalty_follows_the_formula(coverage: float, expected: tuple[int, ...]) -> None:
    # Beam 0 attends to half of the source's two words, beam 1 to both; the third is padding.
    # The longer translation ends in beam 1: 0.1 (log .5 + log .2) = -.23 against 0 outweighs the tenth.
    attention = np.array([[[0.25, 0.1, 0.0], [1.0, 1.0, 0.0]]])
    table = Table(ends_or_goes_on, 1, 2, attention)
    assert up_to_eos(beam.search(table, 1, rules(2, coverage=coverage))[0]) == expected


def test_sentence_at_limit_keeps_unnormalised_sums() -> None:
    found = beam.search(Table(ends_or_goes_on, 1, 2), 1, rules(2, limit=1, length=9.0))
    assert found.tolist() == [[A]], "the best sum, not the best by length: one beam has not ended"


def test_rules_are_read_from_job() -> None:
    assert BeamSettings.of(spec.hyperparameters("reference", "v2"), 150) == BeamSettings(5, 150, 0.6, 0.1)
