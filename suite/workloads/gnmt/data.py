"""The batches of GNMT, equal in every framework: real parallel text, or seeded synthetic tokens.

A batch is a dict of int32 arrays: ``source`` [B, S] and ``source_lengths`` [B], BOS and EOS counted;
``target_in`` [B, T] (from BOS on) and ``target_out`` [B, T] (up to EOS), padded with PAD; ``target_lengths``
[B], the number of predicted tokens. S is the upper end of the bucket and T = S - 1: there are five shapes.
The sentences of a global batch are of one bucket, so all ranks have the same shapes in every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from suite.common.stream import Stream
from suite.contract import STEPS, WARMUP_STEPS, BadData, Job
from suite.workloads.gnmt import index, spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]
    Ids = NDArray[np.int32]
    Pair = tuple[Ids, Ids]

EVALUATION_BATCH = 128
EVALUATION_ROUND = 16  # evaluation sources are padded to a multiple, to keep shapes few


def open_data(job: Job) -> Synthetic | Real:
    """The batches of ``job``; FileNotFoundError names the missing file of a real dataset."""
    return Synthetic(job) if job.key.data == "synthetic" else Real(job)


def entry_of(step: int, plan: Sequence[int]) -> int:
    """The entry of the pinned list for ``step``; steps after 109 (a tail) repeat the measured ones."""
    return plan[step if step < STEPS else WARMUP_STEPS + (step - WARMUP_STEPS) % (STEPS - WARMUP_STEPS)]


def pack(pairs: Sequence[Pair], end: int) -> Arrays:
    """One padded batch of sentence pairs, both sides of at most ``end`` tokens."""
    size = len(pairs)
    arrays = {
        "source": np.full((size, end), spec.PAD, np.int32),
        "source_lengths": np.array([len(source) for source, _ in pairs], np.int32),
        "target_in": np.full((size, end - 1), spec.PAD, np.int32),
        "target_out": np.full((size, end - 1), spec.PAD, np.int32),
        "target_lengths": np.array([len(target) - 1 for _, target in pairs], np.int32),
    }
    for row, (source, target) in enumerate(pairs):
        arrays["source"][row, : len(source)] = source
        arrays["target_in"][row, : len(target) - 1] = target[:-1]
        arrays["target_out"][row, : len(target) - 1] = target[1:]
    return arrays


class Synthetic:
    """One batch per bucket, of random words, with lengths from the specification's table."""

    steps_per_epoch = STEPS - WARMUP_STEPS

    def __init__(self, job: Job) -> None:
        self._key, self._first = job.key, job.rows.start
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._seed, self._salt = job.seed, job.salt
        self._plan = spec.plan(job.seed)
        self._buckets = spec.synthetic_buckets()
        self._ready: dict[int, Arrays] = {}

    def slot(self, step: int) -> int:
        """The bucket of ``step``: its batch never changes."""
        return self._buckets[entry_of(step, self._plan)]

    def shape(self, step: int) -> tuple[int, int]:
        """Padded lengths (S, T) of step ``step``."""
        end = spec.bucket_ends(self._dims.longest)[self.slot(step)]
        return end, end - 1

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`."""
        bucket = self.slot(step)
        if bucket not in self._ready:
            self._ready[bucket] = self._make(bucket)
        return self._ready[bucket]

    def _make(self, bucket: int) -> Arrays:
        lengths = spec.LENGTHS[self._key.scale][bucket]
        words = self._dims.vocabulary - spec.SPECIALS
        size, end = self._key.batch, spec.bucket_ends(self._dims.longest)[bucket]
        stream = Stream("synthetic", spec.NAME, self._seed, bucket, *self._salt)
        drawn = stream.integers(words, size * 2 * end, self._first * 2 * end) + spec.SPECIALS
        ids = drawn.astype(np.int32).reshape(size, 2, end)
        pairs = []
        for row in range(size):
            source, target = lengths[(self._first + row) % len(lengths)]
            pairs.append((_delimited(ids[row, 0, : source - 2]), _delimited(ids[row, 1, : target - 2])))
        return pack(pairs, end)

    def evaluation(self) -> Iterator[Arrays]:
        """Always ValueError: random tokens have no quality."""
        raise ValueError("gnmt: quality needs data=real; synthetic batches have no reference translation")


class Real:
    """Parallel text in the files of the MLPerf reference; pairs longer than ``longest`` are left out."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._root = Path(job.data_dir)
        self._ids = index.read_vocabulary(self._root / index.VOCABULARY, self._dims.vocabulary)
        self._sources, self._targets = self._read_sides()
        lengths = np.stack((self._sources.lengths, self._targets.lengths), axis=1)
        self._rows = np.flatnonzero(lengths.max(axis=1) <= self._dims.longest)
        self._lengths = lengths[self._rows]
        self._plan = spec.plan(job.seed)
        self._epochs: dict[int, list[tuple[int, NDArray[np.int64]]]] = {}
        self._pinned = job.mode != "quality"  # an auditor's mode "batches" reads those of a throughput run
        if self._pinned:
            batches = pinned_batches(self.lengths(), job.global_batch, self._dims.longest)
            self._pinned_list = list(islice(batches, STEPS))
        self.steps_per_epoch = len(self._epoch(0))

    def lengths(self) -> NDArray[np.int64]:
        """Source and target lengths of the training pairs that are short enough, [n, 2]."""
        return self._lengths

    def _read_sides(self) -> list[index.Sentences]:
        names = [f"train.tok.clean.bpe.32000.{side}" for side in ("en", "de")]
        sides = [index.sentences(self._root, name, self._ids) for name in names]
        if len(sides[0]) != len(sides[1]):
            raise BadData(
                f"{names[1]}: expected {len(sides[0])} lines as {names[0]} has, found {len(sides[1])}"
            )
        return sides

    def _epoch(self, epoch: int) -> list[tuple[int, NDArray[np.int64]]]:
        if epoch not in self._epochs:
            key = ("pinned", epoch) if self._pinned else ("seed", self._job.seed, epoch)
            batch, longest = self._job.global_batch, self._dims.longest
            self._epochs = {epoch: epoch_batches(self.lengths(), batch, longest, key)}
        return self._epochs[epoch]

    def _entry(self, step: int) -> tuple[int, NDArray[np.int64]]:
        if self._pinned:
            return self._pinned_list[entry_of(step, self._plan)]
        return self._epoch(step // self.steps_per_epoch)[step % self.steps_per_epoch]

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""

    def shape(self, step: int) -> tuple[int, int]:
        """Padded lengths (S, T) of step ``step``."""
        end = spec.bucket_ends(self._dims.longest)[self._entry(step)[0]]
        return end, end - 1

    def first_of_each_shape(self) -> list[int]:
        """See :class:`suite.contract.ShapedData`; steps after the first 110 have no further shape."""
        first: dict[tuple[int, int], int] = {}
        for step in range(STEPS):
            first.setdefault(self.shape(step), step)
        return list(first.values())

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`."""
        bucket, rows = self._entry(step)
        mine = self._rows[rows[self._job.rows]].tolist()
        pairs = [(self._sources[row], self._targets[row]) for row in mine]
        return pack(pairs, spec.bucket_ends(self._dims.longest)[bucket])

    def evaluation(self) -> Iterator[Arrays]:
        """newstest2014 in batches of similar length; ``index`` is the line of each sentence, from 0."""
        sources = index.sentences(self._root, "newstest2014.tok.bpe.32000.en", self._ids)
        by_length = np.argsort(-sources.lengths, kind="stable")
        for at in range(0, len(sources), EVALUATION_BATCH):
            rows = by_length[at : at + EVALUATION_BATCH]
            longest = max(len(sources[row]) for row in rows)
            width = -(-longest // EVALUATION_ROUND) * EVALUATION_ROUND
            padded = np.full((len(rows), width), spec.PAD, np.int32)
            for at_row, row in enumerate(rows):
                padded[at_row, : len(sources[row])] = sources[row]
            lengths = np.array([len(sources[row]) for row in rows], np.int32)
            yield {"source": padded, "source_lengths": lengths, "index": rows.astype(np.int64)}


def epoch_batches(
    lengths: NDArray[np.int64], batch: int, longest: int, key: tuple[str | int, ...]
) -> list[tuple[int, NDArray[np.int64]]]:
    """The batches of one epoch as (bucket, rows): pairs are shuffled, then batched within their bucket.

    Incomplete batches are dropped and the batches are shuffled.

    ValueError if no bucket holds a whole batch.
    """
    shuffled = Stream("order", spec.NAME, "pairs", *key).permutation(len(lengths))
    width = (longest + spec.BUCKETS - 1) // spec.BUCKETS
    buckets = np.minimum((lengths // width).max(axis=1), spec.BUCKETS - 1)[shuffled]
    batches: list[tuple[int, NDArray[np.int64]]] = []
    for bucket in range(spec.BUCKETS):
        rows = shuffled[buckets == bucket]
        whole = len(rows) // batch
        batches += [(bucket, part) for part in rows[: whole * batch].reshape(whole, batch)]
    if not batches:
        raise ValueError(
            f"gnmt: no bucket of {len(lengths)} pairs fills a batch of {batch}; take a smaller one"
        )
    return [batches[at] for at in Stream("order", spec.NAME, "batches", *key).permutation(len(batches))]


def pinned_batches(
    lengths: NDArray[np.int64], batch: int, longest: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The endless pinned list, epoch after epoch, the same for every seed; runs use its first 110 batches."""
    for epoch in count():
        yield from epoch_batches(lengths, batch, longest, ("pinned", epoch))


def pinned_numbers(lengths: NDArray[np.int64], batch: int, longest: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of ``pinned.py``: source tokens, target tokens and position pairs of the 110 batches."""
    chosen = [lengths[rows] - (0, 1) for _, rows in islice(pinned_batches(lengths, batch, longest), STEPS)]
    sums = [(int(part[:, 0].sum()), int(part[:, 1].sum()), int(part.prod(axis=1).sum())) for part in chosen]
    return tuple(zip(*sums, strict=True))


def _delimited(words: Ids) -> Ids:
    return np.concatenate(([spec.BOS], words, [spec.EOS])).astype(np.int32)
