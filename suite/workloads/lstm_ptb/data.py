"""The batches of the language model, equal in every framework: text, or one batch of random ids.

A batch is ``inputs`` and ``targets``, int32 [B, T], the targets one token ahead. A text is cut into as many
rows of equal length as the global batch has; they are read in parallel (``ptb_producer`` of TensorFlow's
tutorial ``reader.py``), B of them by each rank: window k of an epoch continues window k - 1, as the carried
state of a pair requires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import STEPS, BadData, Job
from suite.workloads.lstm_ptb import spec
from suite.workloads.one_batch import OneBatch

Arrays = dict[str, NDArray[Any]]
Ids = NDArray[np.int32]


def open_data(job: Job) -> Synthetic | Text:
    """The batches of ``job``; FileNotFoundError names the missing file of a text."""
    return Synthetic(job) if job.key.data == "synthetic" else Text(job)


class Synthetic(OneBatch):
    """One batch of random ids with frequencies as in text; the state is carried as with text."""

    def __init__(self, job: Job) -> None:
        dims, size = spec.dimensions(job.key.scale, job.key.variant), job.key.batch
        stream, width = Stream("synthetic", spec.NAME, job.seed, *job.salt), dims.steps + 1
        draw = stream.unit(size * width, job.rows.start * width)
        # The cube of a uniform number: the most frequent tenth of the words makes up 46 % of the text.
        ids = (draw * draw * draw * dims.vocabulary).astype(np.int32)
        self._batch = _pair(ids.reshape(size, width))
        self.steps_per_epoch = int(job.hyper["epoch_steps"])


class Text:
    """``ptb.train.txt`` in windows, the same in every epoch, and ``ptb.test.txt`` in one piece."""

    def __init__(self, job: Job) -> None:
        dims, size = spec.dimensions(job.key.scale, job.key.variant), job.global_batch
        self._steps, root = dims.steps, Path(job.data_dir)
        lines = read_lines(root / "ptb.train.txt")
        vocabulary = make_vocabulary(lines)
        if len(vocabulary) != dims.vocabulary:
            raise BadData(
                f"ptb.train.txt: expected {dims.vocabulary} different words, found "
                f"{len(vocabulary)}; prepare the dataset again"
            )
        tokens = to_ids(lines, vocabulary, "ptb.train.txt")
        self.test = to_ids(read_lines(root / "ptb.test.txt"), vocabulary, "ptb.test.txt")
        length = len(tokens) // size
        self._rows = tokens[: length * size].reshape(size, length)[job.rows]
        self.steps_per_epoch = (length - 1) // self._steps
        least = STEPS if job.mode == "throughput" else 1
        if self.steps_per_epoch < least:
            raise BadData(
                f"lstm_ptb: expected at least {least} windows of {self._steps} tokens, found "
                f"{self.steps_per_epoch} with a global batch of {size}; take a smaller one, or data=synthetic"
            )

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`."""
        at = step % self.steps_per_epoch * self._steps
        return _pair(self._rows[:, at : at + self._steps + 1])

    def evaluation(self) -> Iterator[Arrays]:
        """The whole test split at once, ``tokens`` [n]: one row, with the state carried from start to end."""
        yield {"tokens": self.test}


def _pair(rows: Ids) -> Arrays:
    return {"inputs": rows[:, :-1].copy(), "targets": rows[:, 1:].copy()}


def windows(tokens: Ids, steps: int) -> Iterator[Arrays]:
    """``tokens`` [n] as batches of one row of ``steps`` tokens, the last padded with zeros.

    With a carried state the result is that of an evaluation with batch 1, token by token.
    """
    count = len(tokens) - 1
    padded = np.zeros(-(-count // steps) * steps + 1, np.int32)
    padded[: count + 1] = tokens
    for at in range(0, count, steps):
        yield _pair(padded[None, at : at + steps + 1])


def read_lines(path: Path) -> list[list[str]]:
    """The words of each line. BadData for a file without words or not in UTF-8."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise BadData(f"{path.name}: expected UTF-8 text, found {error}") from error
    if not any(lines):
        raise BadData(f"{path.name}: expected text, found no words; prepare the dataset again")
    return lines


def make_vocabulary(lines: list[list[str]]) -> dict[str, int]:
    """Word to id, from 0: by descending frequency, then alphabetically."""
    counts = Counter(word for line in lines for word in line)
    counts[spec.EOS] += len(lines)
    return {word: at for at, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word)))}


def to_ids(lines: list[list[str]], vocabulary: dict[str, int], name: str) -> Ids:
    """The ids [n] of the text, with a token for the end of each line. BadData for an unknown word."""
    end, ids = vocabulary[spec.EOS], []
    for number, line in enumerate(lines, start=1):
        try:
            ids += [vocabulary[word] for word in line]
        except KeyError as error:
            raise BadData(
                f"{name} line {number}: expected words of ptb.train.txt, found {error}; "
                "prepare the dataset again"
            ) from error
        ids.append(end)
    return np.array(ids, np.int32)
