"""The batches of word2vec: windows over text read from disk, or over one synthetic text.

All random draws (sub-sampling, windows, negatives) are made here, from the frozen stream, so that every
framework trains on the same pairs. With C = ``spec.capacity(batch)`` rows for kept words, W words on either
side and K negatives, a training step has the arrays

* ``words`` int32 [C + 2W]: the kept words in order, W entries of padding before and at least W after;
* ``targets`` int32 [C, 1 + K]: each kept word as a centre, then its negatives;
* ``contexts`` float32 [C, 2W + 1]: 1 where that position of the window is a context of the centre, else 0;
* ``live`` float32 [C, 1 + K]: 1 for a valid target, 0 for padding and for a negative equal to the centre;
* ``word_share`` [C + 2W] and ``target_share`` [C, 1 + K] float32: the factor of that row's gradient in the
  update (see ``spec``).

C is per rank: the kept words of a global batch are its rows, and a rank has C of them. On either side of them
its ``words`` have W words of the neighbouring ranks instead of padding; shares count the pairs of the global
batch.

A step of inference has ``queries`` int32 [batch].
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import BadData, Job
from suite.workloads.one_batch import OneBatch
from suite.workloads.word2vec import spec, text

Arrays = dict[str, NDArray[Any]]
Ids = NDArray[np.int32]
NOISE = 1 << 22  # entries of the table that negatives are drawn from; word2vec.c has 10**8
EVALUATION_ROWS = 10_000


def open_data(job: Job) -> Text | Synthetic:
    """The data of ``job``, with the module's arrays; FileNotFoundError where the text is missing."""
    return Synthetic(job) if job.key.data == "synthetic" else Text(job)


class Pairs:
    """Makes the arrays of a step from a part of the corpus."""

    def __init__(self, job: Job, counts: NDArray[np.int64]) -> None:
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._row_pairs = float(job.hyper["row_pairs"])
        self._job, self._capacity = job, spec.capacity(job.key.batch)
        self._kept = kept_shares(counts, float(job.hyper["sample"]))
        self._noise = noise_table(counts)

    def arrays(self, words: Ids, lines: NDArray[np.int64], *key: str | int) -> Arrays:
        """The rank's arrays for the global batch ``words`` [n] in lines ``lines`` [n].

        ``key`` identifies the random draws. Every rank makes the arrays of all: shares count all pairs.
        """
        arrays = self._global_arrays(words, lines, *key)
        if self._job.world_size == 1:
            return arrays
        first, end = self._job.rank * self._capacity, (self._job.rank + 1) * self._capacity
        beside = {"words": 2 * self._dims.window, "word_share": 2 * self._dims.window}
        # Copies: views would keep the arrays of all ranks in memory.
        return {name: array[first : end + beside.get(name, 0)].copy() for name, array in arrays.items()}

    def _global_arrays(self, words: Ids, lines: NDArray[np.int64], *key: str | int) -> Arrays:
        size, window = self._capacity * self._job.world_size, self._dims.window
        drawn = Stream("keep", spec.NAME, *key).unit(len(words))
        rows = np.flatnonzero(drawn < self._kept[words])[: spec.capacity(self._job.global_batch)]
        padded = np.zeros(size + 2 * window, np.int32)
        padded[window : window + len(rows)] = words[rows]
        contexts = self._contexts(lines[rows], size, *key)
        draws = Stream("negatives", spec.NAME, *key).integers(NOISE, size * self._dims.negatives)
        negatives = self._noise[draws].reshape(size, -1)
        centres = padded[window : window + size, None]
        targets = np.concatenate((centres, negatives), axis=1)
        live = np.zeros(targets.shape, np.float32)
        live[: len(rows)] = 1
        live[:, 1:][negatives == centres] = 0
        arrays: Arrays = {"words": padded, "targets": targets, "contexts": contexts, "live": live}
        return arrays | self._shares(arrays)

    def _contexts(self, lines: NDArray[np.int64], size: int, *key: str | int) -> NDArray[np.float32]:
        """The contexts [size, 2W + 1] of each centre: words of its line within a random distance of 1..W."""
        window, count = self._dims.window, len(lines)
        radius = 1 + Stream("window", spec.NAME, *key).integers(window, count)
        around = np.full(count + 2 * window, -1, np.int64)
        around[window : window + count] = lines
        contexts = np.zeros((size, self._dims.span), np.float32)
        for offset in range(self._dims.span):
            distance = abs(offset - window)
            if distance:
                same_line = around[offset : offset + count] == lines
                contexts[:count, offset] = same_line & (distance <= radius)
        return contexts

    def _shares(self, arrays: Arrays) -> Arrays:
        """``word_share`` and ``target_share``: min(1, row_pairs / pairs of the step that touch the row)."""
        words, targets, contexts, live = (arrays[name] for name in ("words", "targets", "contexts", "live"))
        pairs = contexts.sum(axis=1)  # of each centre
        uses = np.zeros(len(words))  # of each word as a context
        for offset in range(self._dims.span):
            uses[offset : offset + len(pairs)] += contexts[:, offset]
        shares = {}
        weights = {"word_share": (words, uses), "target_share": (targets, live * pairs[:, None])}
        for name, (ids, weight) in weights.items():
            touched = np.bincount(ids.reshape(-1), weight.reshape(-1), self._dims.vocabulary)[ids]
            shares[name] = np.minimum(1, self._row_pairs / np.maximum(touched, 1)).astype(np.float32)
        return shares


def kept_shares(counts: NDArray[np.int64], sample: float) -> NDArray[np.float64]:
    """The probability that sub-sampling keeps each word: (sqrt(x) + 1) / x, x = frequency / ``sample``.

    The formula of ``word2vec.c``, which differs slightly from the paper's.
    """
    ratio = counts / (sample * counts.sum())
    shares: NDArray[np.float64] = (np.sqrt(ratio) + 1) / ratio
    return shares


def noise_table(counts: NDArray[np.int64]) -> Ids:
    """int32 [NOISE]: each word has entries in proportion to count ** 0.75.

    The power is computed by two square roots and a product, which are equal to the last bit on every machine;
    ``**`` is not.
    """
    root = np.sqrt(counts.astype(np.float64))
    edges = np.cumsum(root * np.sqrt(root))
    centres = (np.arange(NOISE) + 0.5) * (edges[-1] / NOISE)
    return np.minimum(np.searchsorted(edges, centres), len(counts) - 1).astype(np.int32)


def zipf(vocabulary: int, count: int, *salt: str) -> tuple[Ids, NDArray[np.int64]]:
    """``count`` words drawn by Zipf's law, and the word counts of such a corpus, most frequent first."""
    counts = 1_000_000_000 // np.arange(1, vocabulary + 1)
    edges = np.cumsum(counts)
    draws = Stream("synthetic", spec.NAME, vocabulary, *salt).unit(count) * edges[-1]
    return np.searchsorted(edges, draws, side="right").astype(np.int32), counts


class Synthetic(OneBatch):
    """One batch, the same for every seed: words by Zipf's law, with a vocabulary as large as the text's."""

    def __init__(self, job: Job) -> None:
        count, dims = job.global_batch, spec.dimensions(job.key.scale, job.key.variant)
        words, counts = zipf(dims.vocabulary, count, *job.salt)
        if job.key.phase == "train":
            lines = np.arange(count) // spec.LINE
            self._batch = Pairs(job, counts).arrays(words, lines, "synthetic", *job.salt)
        else:
            self._batch = {"queries": words[job.rows]}


class Text:
    """The text8 corpus in lines of 1,000 words, in a new order each epoch; an incomplete line is dropped."""

    def __init__(self, job: Job) -> None:
        self._job, self._size = job, job.global_batch
        dims = spec.dimensions(job.key.scale, job.key.variant)
        words = text.read_words(Path(job.data_dir) / text.FILE)
        known = text.vocabulary(words, spec.MIN_COUNT)
        if len(known) != dims.vocabulary:
            raise BadData(
                f"{text.FILE}: expected {dims.vocabulary} words that occur {spec.MIN_COUNT} times, "
                f"found {len(known)}; prepare the dataset again"
            )
        self._vocabulary = len(known)
        ids = text.numbered(words, known)
        count = len(ids) // spec.LINE
        self._lines = ids[: count * spec.LINE].reshape(count, spec.LINE)
        self.steps_per_epoch = self._lines.size // self._size
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"word2vec: expected a global batch of at most the {self._lines.size} words of an epoch, "
                f"found {self._size}"
            )
        self._pairs = Pairs(job, np.fromiter(known.values(), np.int64, len(known)))
        self._orders: dict[tuple[str, int], NDArray[np.int64]] = {}

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`; the incomplete last global batch of an epoch is dropped."""
        if self._job.key.phase != "train":
            positions = np.arange(step * self._size, (step + 1) * self._size)
            return {"queries": self._queries(positions[self._job.rows])}
        epoch, at = divmod(step, self.steps_per_epoch)
        positions = np.arange(at * self._size, (at + 1) * self._size)
        lines = self._order("lines", len(self._lines), epoch)[positions // spec.LINE]
        words = self._lines[lines, positions % spec.LINE]
        return self._pairs.arrays(words, lines, self._job.seed, step)

    def _queries(self, positions: NDArray[np.int64]) -> Ids:
        """The words at ``positions`` of an endless sequence of permutations of the vocabulary."""
        rounds, at = divmod(positions, self._vocabulary)
        queries = np.empty(len(positions), np.int32)
        for number in np.unique(rounds).tolist():
            chosen = rounds == number
            queries[chosen] = self._order("queries", self._vocabulary, number)[at[chosen]]
        return queries

    def _order(self, purpose: str, count: int, number: int) -> NDArray[np.int64]:
        """The ``number``-th permutation of range(count)."""
        if (purpose, number) not in self._orders:
            order = Stream("order", spec.NAME, purpose, self._job.seed, number).permutation(count)
            # Two orders are kept, because a reader may be ahead of the steps.
            previous = {old: self._orders[old] for old in sorted(self._orders)[-1:]}
            self._orders = previous | {(purpose, number): order}
        return self._orders[purpose, number]

    def evaluation(self) -> Iterator[Arrays]:
        """The words that analogies are evaluated over, most frequent first: ``words`` int32 [n]."""
        dims = spec.dimensions(self._job.key.scale, self._job.key.variant)
        last = min(dims.vocabulary, spec.QUESTION_WORDS)
        for start in range(0, last, EVALUATION_ROWS):
            yield {"words": np.arange(start, min(start + EVALUATION_ROWS, last), dtype=np.int32)}
