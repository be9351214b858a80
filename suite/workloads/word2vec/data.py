"""The batches of word2vec: windows over text read from disk, or over one synthetic stretch of it.

All draws (sub-sampling, windows, negatives) are made here, from the frozen stream, so that every framework
trains on the same pairs. With C = ``spec.capacity(batch)`` places for kept words, W words on either side and
K negatives, a training step has the arrays

* ``words`` int32 [C + 2W]: the kept words in order, W places of padding before and at least W after them;
* ``targets`` int32 [C, 1 + K]: each kept word as a centre, then its negatives;
* ``contexts`` float32 [C, 2W + 1]: 1 where that place of the window is a context of the centre, else 0;
* ``live`` float32 [C, 1 + K]: 1 where the target counts, 0 in padding and for a negative equal to the centre;
* ``word_share`` [C + 2W] and ``target_share`` [C, 1 + K] float32: by what the gradient of that row is
  multiplied in the update (``spec``).

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
NOISE = 1 << 22  # places of the table that negatives are drawn from; word2vec.c has 10**8
EVALUATION_ROWS = 10_000


def open_data(job: Job) -> Text | Synthetic:
    """The data of ``job``, with the arrays above; FileNotFoundError where the text is missing."""
    return Synthetic(job) if job.key.data == "synthetic" else Text(job)


class Pairs:
    """From a stretch of the corpus to the arrays of a step."""

    def __init__(self, job: Job, counts: NDArray[np.int64]) -> None:
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._row_pairs = float(job.hyper["row_pairs"])
        self._capacity = spec.capacity(job.key.batch)
        self._kept = kept_shares(counts, float(job.hyper["sample"]))
        self._noise = noise_table(counts)

    def arrays(self, words: Ids, lines: NDArray[np.int64], *key: str | int) -> Arrays:
        """The arrays of ``words`` [n], each of the line numbered in ``lines``; draws are keyed by ``key``."""
        size, window = self._capacity, self._dims.window
        drawn = Stream("keep", spec.NAME, *key).unit(len(words))
        rows = np.flatnonzero(drawn < self._kept[words])[:size]
        padded = np.zeros(size + 2 * window, np.int32)
        padded[window : window + len(rows)] = words[rows]
        contexts = self._contexts(lines[rows], *key)
        draws = Stream("negatives", spec.NAME, *key).integers(NOISE, size * self._dims.negatives)
        negatives = self._noise[draws].reshape(size, -1)
        centres = padded[window : window + size, None]
        targets = np.concatenate((centres, negatives), axis=1)
        live = np.zeros(targets.shape, np.float32)
        live[: len(rows)] = 1
        live[:, 1:][negatives == centres] = 0
        arrays: Arrays = {"words": padded, "targets": targets, "contexts": contexts, "live": live}
        return arrays | self._shares(arrays)

    def _contexts(self, lines: NDArray[np.int64], *key: str | int) -> NDArray[np.float32]:
        """Which places of each centre's window, drawn from 1..W words wide, are its contexts."""
        window, count = self._dims.window, len(lines)
        radius = 1 + Stream("window", spec.NAME, *key).integers(window, count)
        around = np.full(count + 2 * window, -1, np.int64)
        around[window : window + count] = lines
        contexts = np.zeros((self._capacity, self._dims.span), np.float32)
        for place in range(self._dims.span):
            distance = abs(place - window)
            if distance:
                same = around[place : place + count] == lines
                contexts[:count, place] = same & (distance <= radius)
        return contexts

    def _shares(self, arrays: Arrays) -> Arrays:
        """``word_share`` and ``target_share``: min(1, row_pairs / pairs of the step that touch the row)."""
        words, targets, contexts, live = (arrays[name] for name in ("words", "targets", "contexts", "live"))
        pairs = contexts.sum(axis=1)  # of each centre
        uses = np.zeros(len(words))  # of each place as a context
        for place in range(self._dims.span):
            uses[place : place + len(pairs)] += contexts[:, place]
        found = {}
        weights = {"word_share": (words, uses), "target_share": (targets, live * pairs[:, None])}
        for name, (ids, weight) in weights.items():
            touched = np.bincount(ids.reshape(-1), weight.reshape(-1), self._dims.vocabulary)[ids]
            found[name] = np.minimum(1, self._row_pairs / np.maximum(touched, 1)).astype(np.float32)
        return found


def kept_shares(counts: NDArray[np.int64], sample: float) -> NDArray[np.float64]:
    """The probability that sub-sampling keeps each word: (sqrt(x) + 1) / x, x = frequency / ``sample``.

    The form of ``word2vec.c``, which is not quite the paper's.
    """
    ratio = counts / (sample * counts.sum())
    shares: NDArray[np.float64] = (np.sqrt(ratio) + 1) / ratio
    return shares


def noise_table(counts: NDArray[np.int64]) -> Ids:
    """int32 [NOISE]: each word fills places in proportion to count ** 0.75.

    The power is two square roots and a product, exact to the last bit, which ``**`` is not on every machine.
    """
    root = np.sqrt(counts.astype(np.float64))
    edges = np.cumsum(root * np.sqrt(root))
    places = (np.arange(NOISE) + 0.5) * (edges[-1] / NOISE)
    return np.minimum(np.searchsorted(edges, places), len(counts) - 1).astype(np.int32)


def zipf(vocabulary: int, count: int, *salt: str) -> tuple[Ids, NDArray[np.int64]]:
    """``count`` words drawn by Zipf's law, and the counts of a corpus that has it, most frequent first."""
    counts = 1_000_000_000 // np.arange(1, vocabulary + 1)
    edges = np.cumsum(counts)
    draws = Stream("synthetic", spec.NAME, vocabulary, *salt).unit(count) * edges[-1]
    return np.searchsorted(edges, draws, side="right").astype(np.int32), counts


class Synthetic(OneBatch):
    """One batch, the same for every seed: words by Zipf's law, as many kinds as the text has."""

    def __init__(self, job: Job) -> None:
        count, dims = job.key.batch, spec.dimensions(job.key.scale, job.key.variant)
        words, counts = zipf(dims.vocabulary, count, *job.salt)
        if job.key.phase == "train":
            lines = np.arange(count) // spec.LINE
            self._batch = Pairs(job, counts).arrays(words, lines, "synthetic", *job.salt)
        else:
            self._batch = {"queries": words}

    def evaluation(self) -> Iterator[Arrays]:
        """Nothing to evaluate: ValueError."""
        raise ValueError("word2vec: quality is measured on text: expected data=real, found data=synthetic")


class Text:
    """text8 in lines of 1,000 words, in an order of their own each epoch; what is left over is dropped."""

    def __init__(self, job: Job) -> None:
        self._job, self._size = job, job.key.batch
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
                f"word2vec: expected a batch of at most the {self._lines.size} words of an epoch, "
                f"found {self._size}"
            )
        self._pairs = Pairs(job, np.fromiter(known.values(), np.int64, len(known)))
        self._orders: dict[tuple[str, int], NDArray[np.int64]] = {}

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`; the incomplete last batch of an epoch is dropped."""
        if self._job.key.phase != "train":
            return {"queries": self._queries(np.arange(step * self._size, (step + 1) * self._size))}
        epoch, at = divmod(step, self.steps_per_epoch)
        places = np.arange(at * self._size, (at + 1) * self._size)
        lines = self._order("lines", len(self._lines), epoch)[places // spec.LINE]
        words = self._lines[lines, places % spec.LINE]
        return self._pairs.arrays(words, lines, self._job.seed, step)

    def _queries(self, places: NDArray[np.int64]) -> Ids:
        """Every word of the vocabulary once before any is asked again."""
        rounds, at = divmod(places, self._vocabulary)
        queries = np.empty(len(places), np.int32)
        for number in np.unique(rounds).tolist():
            chosen = rounds == number
            queries[chosen] = self._order("queries", self._vocabulary, number)[at[chosen]]
        return queries

    def _order(self, purpose: str, count: int, number: int) -> NDArray[np.int64]:
        """The ``number``-th permutation of range(count)."""
        if (purpose, number) not in self._orders:
            order = Stream("order", spec.NAME, purpose, self._job.seed, number).permutation(count)
            # Two are kept, so that a reader ahead of the steps may cross into the next.
            kept = {old: self._orders[old] for old in sorted(self._orders)[-1:]}
            self._orders = kept | {(purpose, number): order}
        return self._orders[purpose, number]

    def evaluation(self) -> Iterator[Arrays]:
        """The words that analogies are asked over, most frequent first: ``words`` int32 [n]."""
        dims = spec.dimensions(self._job.key.scale, self._job.key.variant)
        last = min(dims.vocabulary, spec.QUESTION_WORDS)
        for start in range(0, last, EVALUATION_ROWS):
            yield {"words": np.arange(start, min(start + EVALUATION_ROWS, last), dtype=np.int32)}
