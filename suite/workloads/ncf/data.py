"""The batches of NCF: ratings read from disk, with new negatives in every epoch, or one synthetic batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.contract import BadData, Job
from suite.workloads.ncf import spec
from suite.workloads.one_batch import OneBatch

Arrays = dict[str, NDArray[Any]]
Ids = NDArray[np.int64]


def open_data(job: Job) -> Ratings | Synthetic:
    """The data of ``job``. A step has ``users``, ``items`` int32 [batch] and ``labels`` float32 [batch]."""
    return Synthetic(job) if job.key.data == "synthetic" else Ratings(job)


class Synthetic(OneBatch):
    """One batch, the same for every seed: uniform users and items, positives drawn by popularity."""

    def __init__(self, job: Job) -> None:
        dims, count = spec.dimensions(job.key.scale, job.key.variant), job.key.batch

        def stream(purpose: str) -> Stream:
            return Stream("synthetic", spec.NAME, dims.users, dims.items, purpose, *job.salt)

        first = job.rows.start
        positive = stream("labels").integers(1 + int(job.hyper["negatives"]), count, first) == 0
        # The cube of a uniform number: the most popular tenth of the items has 46 % of the positives.
        draw = stream("popular").unit(count, first)
        popular = (draw * draw * draw * dims.items).astype(np.int64)
        items = np.where(positive, popular, stream("items").integers(dims.items, count, first))
        users = stream("users").integers(dims.users, count, first)
        self._batch = _pack(users, items, positive)


class Ratings:
    """``ratings.dat`` of MovieLens: every rating is a positive, the last of each user is held out."""

    def __init__(self, job: Job) -> None:
        self._seed, self._size, self._rows = job.seed, job.global_batch, job.rows
        self._negatives = int(job.hyper["negatives"])
        dims = spec.dimensions(job.key.scale, job.key.variant)
        users, items, times = read_ratings(Path(job.data_dir) / "ratings.dat", dims)
        self.items = int(items.max()) + 1
        held = last_of_each(users, times)
        # Training positives are never drawn as negatives; held-out ones may be, as in the authors' code.
        train = np.ones(len(users), bool)
        train[held] = False
        self._users, self._positives = users[train], items[train]
        self._held = items[held]
        self._seen = np.zeros((len(held), self.items), bool)
        self._seen[self._users, self._positives] = True
        self._check()
        self.samples = len(self._users) * (1 + self._negatives)
        self.steps_per_epoch = self.samples // self._size
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"ncf: expected a global batch of at most the {self.samples} samples of an epoch, found "
                f"{self._size}"
            )
        self._epochs: dict[int, Arrays] = {}

    def _check(self) -> None:
        unrated = self.items - self._seen.sum(axis=1) - 1
        if unrated.min() < spec.CANDIDATES:
            raise BadData(
                f"ratings.dat: expected {spec.CANDIDATES} items that a user has not rated, "
                f"found {unrated.min()} for user {unrated.argmin()} (renumbered)"
            )

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`; the incomplete last global batch of an epoch is dropped.

        Each rank draws the whole epoch: a rejected negative shifts the positions of later redraws.
        """
        epoch, at = divmod(step, self.steps_per_epoch)
        arrays = self._epoch(epoch)
        window = slice(at * self._size, (at + 1) * self._size)
        return {name: array[window][self._rows] for name, array in arrays.items()}

    def _epoch(self, epoch: int) -> Arrays:
        if epoch not in self._epochs:
            # Two epochs are kept, because a reader may be ahead of the steps.
            self._epochs = {old: self._epochs[old] for old in sorted(self._epochs)[-1:]}
            self._epochs[epoch] = self._draw(epoch)
        return self._epochs[epoch]

    def _draw(self, epoch: int) -> Arrays:
        owners = np.repeat(self._users, self._negatives)
        users = np.concatenate((self._users, owners))
        items = np.concatenate((self._positives, self._draw_negatives(owners, epoch)))
        order = Stream("order", spec.NAME, self._seed, epoch).permutation(len(users))
        return _pack(users[order], items[order], order < len(self._users))

    def _draw_negatives(self, owners: Ids, epoch: int) -> Ids:
        """An item for each user in ``owners`` that this user has not rated in training; redraws if needed."""
        items = np.empty(len(owners), np.int64)
        rows, attempt = np.arange(len(owners)), 0
        while len(rows):
            stream = Stream("negatives", spec.NAME, self._seed, epoch, attempt)
            items[rows] = stream.integers(self.items, len(rows))
            rows = rows[self._seen[owners[rows], items[rows]]]
            attempt += 1
        return items

    def evaluation(self) -> Iterator[Arrays]:
        """Every user once: ``users`` int32 [n], ``items`` int32 [n, 100], the held-out positive in column 0.

        The 99 negatives do not depend on the seed; they are distinct items that the user has not rated.
        """
        for start in range(0, len(self._held), spec.EVALUATION_USERS):
            users = np.arange(start, min(start + spec.EVALUATION_USERS, len(self._held)))
            items = np.stack([self._candidates(int(user)) for user in users])
            yield {"users": users.astype(np.int32), "items": items.astype(np.int32)}

    def _candidates(self, user: int) -> Ids:
        rated = self._seen[user].copy()
        rated[self._held[user]] = True
        unrated = np.flatnonzero(~rated)
        chosen = Stream("candidates", spec.NAME, user).permutation(len(unrated))[: spec.CANDIDATES]
        return np.concatenate(([self._held[user]], unrated[chosen]))


def _pack(users: Ids, items: Ids, positive: NDArray[np.bool_]) -> Arrays:
    return {
        "users": users.astype(np.int32),
        "items": items.astype(np.int32),
        "labels": positive.astype(np.float32),
    }


def read_ratings(path: Path, dims: spec.Dimensions) -> tuple[Ids, Ids, Ids]:
    """Users, items (both renumbered from 0 without gaps) and times of ``UserID::MovieID::Rating::Timestamp``.

    BadData where a line does not have four integers, or where users or items do not fit the model's sizes.
    """
    text = path.read_bytes()
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    fields = text.replace(b"::", b" ").split()
    try:
        numbers = np.array(fields if len(fields) == 4 * lines else [], dtype=np.int64)
    except ValueError:  # a field that is no integer
        numbers = np.zeros(0, np.int64)
    if not len(numbers):
        raise BadData(f"{path.name} {_bad_line(text)}; prepare the dataset again")
    columns = numbers.reshape(-1, 4)
    known_users, users = np.unique(columns[:, 0], return_inverse=True)
    known_items, items = np.unique(columns[:, 1], return_inverse=True)
    if len(known_users) != dims.users or len(known_items) > dims.items:
        raise BadData(
            f"{path.name}: expected {dims.users} users and at most {dims.items} items, "
            f"found {len(known_users)} and {len(known_items)}"
        )
    return users.reshape(-1).astype(np.int64), items.reshape(-1).astype(np.int64), columns[:, 3]


def _bad_line(text: bytes) -> str:
    """Number and content of the first line that is not a rating, as a message."""
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split(b"::")
        if len(fields) != 4 or not all(field.strip().lstrip(b"-").isdigit() for field in fields):
            shown = line[:40].decode("ascii", "backslashreplace")
            return f"line {number}: expected UserID::MovieID::Rating::Timestamp, found {shown!r}"
    return "line 1: expected ratings, found none"


def last_of_each(users: Ids, times: Ids) -> Ids:
    """The row of each user's latest rating, in the order of users; of equal times that of the later line."""
    rows = np.lexsort((np.arange(len(users)), times, users))
    ends = np.flatnonzero(np.diff(users[rows], append=users.max() + 1))
    return rows[ends]
