"""Beam search in numpy, shared by all frameworks, which only compute the scores of single decoder steps.

Length normalisation and coverage penalty are those of Wu et al., "Google's Neural Machine Translation
System" (2016), section 7, as NVIDIA DeepLearningExamples (``seq2seq/inference/beam_search.py``) applies them:

* a beam that has ended is fed EOS; its score and its attention do not change any more;
* during the search beams are ranked by the sum of log probabilities; scores are normalised once every beam of
  the sentence has ended; a sentence that reaches the limit first keeps its sums;
* a length counts BOS and EOS;
* attention is summed per beam position and does not move when beams change their positions.

For ranking, scores are rounded to 1/4096 and ties go to the smaller index, so that translations do not depend
on the last bits of a framework's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from suite.workloads.gnmt import spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from suite.contract import Job

    Arrays = dict[str, NDArray[Any]]
    Ids = NDArray[np.int32]
    Scores = NDArray[np.float64]

GRID = 4096.0  # for ranking, scores are rounded to multiples of 1 / GRID
LENGTH_CONSTANT = 5.0
_NEVER = -1e6  # below every sum of log probabilities: chosen only where there is no other candidate


class Decoder(Protocol):
    """The decoder of one batch of B sentences with K beams each; it holds the state of every beam."""

    def advance(self, tokens: Ids, parents: Ids) -> tuple[Ids, NDArray[Any], NDArray[Any]]:
        """Feed ``tokens`` [B, K] to the beams, after copying to beam k the state of beam ``parents[b, k]``.

        Returns the K best next words of each beam [B, K, K], best first and ties by the smaller id, their log
        probabilities [B, K, K], and the attention [B, K, S].
        """


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """Width, limit and scoring of a search."""

    beams: int
    limit: int  # most tokens, EOS counted
    length_penalty: float  # exponent of the length normalisation
    coverage_penalty: float

    @classmethod
    def of(cls, hyper: Mapping[str, str], limit: int) -> BeamSettings:
        """The rules in a job's hyperparameters."""
        return cls(
            int(hyper["beam"]), limit, float(hyper["length_penalty"]), float(hyper["coverage_penalty"])
        )


def ranked(scores: Scores) -> NDArray[np.intp]:
    """Indices of the last axis, best first: by rounded score, ties by the smaller index."""
    return np.argsort(-np.floor(scores * GRID + 0.5), axis=-1, kind="stable")


def search(decoder: Decoder, sentences: int, rules: BeamSettings) -> Ids:
    """The best translation of each sentence, [sentences, L] with L at most the limit; PAD after EOS."""
    beams = rules.beams
    tokens = np.full((sentences, beams), spec.BOS, np.int32)
    parents = np.tile(np.arange(beams, dtype=np.int32), (sentences, 1))
    sums = np.full((sentences, beams), _NEVER)
    sums[:, 0] = 0.0  # all beams of a sentence start alike: only one of them may branch
    frozen = np.full(beams, _NEVER)
    frozen[0] = 0.0
    covered: Any = 0.0
    history: list[tuple[Ids, Ids]] = []
    for _ in range(rules.limit):
        ended = tokens == spec.EOS
        if ended.all():
            break
        words, gains, attention = decoder.advance(tokens, parents)
        covered = covered + np.where(ended[:, :, None], 0.0, attention)
        words = np.where(ended[:, :, None], spec.EOS, words)
        gains = np.where(ended[:, :, None], frozen, gains.astype(np.float64))
        candidates = (sums[:, :, None] + gains).reshape(sentences, beams * beams)
        chosen = ranked(candidates)[:, :beams]
        sums = np.take_along_axis(candidates, chosen, axis=1)
        tokens = np.take_along_axis(words.reshape(sentences, -1), chosen, axis=1).astype(np.int32)
        parents = (chosen // beams).astype(np.int32)
        history.append((tokens, parents))
    sequences = _sequences(history)
    best = ranked(_normalised(sequences, sums, covered, rules))[:, :1]
    return np.take_along_axis(sequences, best[:, :, None], axis=1)[:, 0]


def translations(decoder: Decoder, arrays: Arrays, job: Job) -> Arrays:
    """The ``tokens`` of :func:`search` for a batch of sources and the ``index`` of their lines."""
    sentences, width = arrays["source"].shape
    rules = BeamSettings.of(job.hyper, spec.decoding_limit(job.key.scale, width))
    return {"tokens": search(decoder, sentences, rules), "index": arrays["index"]}


def _sequences(history: list[tuple[Ids, Ids]]) -> Ids:
    """The tokens [B, K, L] of the final beams, followed back through their parents; PAD after EOS."""
    sentences, beams = history[-1][0].shape
    sequences = np.empty((sentences, beams, len(history)), np.int32)
    at: NDArray[np.integer[Any]] = np.tile(np.arange(beams), (sentences, 1))
    for step in range(len(history) - 1, -1, -1):
        tokens, parents = history[step]
        sequences[:, :, step] = np.take_along_axis(tokens, at, axis=1)
        at = np.take_along_axis(parents, at, axis=1)
    after_end = np.cumsum(sequences == spec.EOS, axis=2) > 1
    sequences[after_end] = spec.PAD
    return sequences


def _normalised(sequences: Ids, sums: Scores, covered: Any, rules: BeamSettings) -> Scores:
    """Final scores [B, K] of ``sequences`` [B, K, L]; ``sums`` for sentences that reached the limit."""
    ends = sequences == spec.EOS
    lengths = 1.0 + np.where(ends.any(axis=2), ends.argmax(axis=2) + 1, sequences.shape[2])
    scale = ((LENGTH_CONSTANT + lengths) / (LENGTH_CONSTANT + 1.0)) ** rules.length_penalty
    seen = np.clip(covered, 0.0, 1.0)
    # Padding has no attention and does not contribute to the penalty.
    penalty = np.log(np.where(seen > 0.0, seen, 1.0)).sum(axis=2)
    complete = ends.any(axis=2).all(axis=1, keepdims=True)
    return np.where(complete, sums / scale + rules.coverage_penalty * penalty, sums)
