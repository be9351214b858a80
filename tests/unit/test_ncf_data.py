"""NCF's batches: reading, holding out, negatives, candidates, purity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.contract import BadData, Job, Key
from suite.workloads import open_data
from suite.workloads.ncf import data, spec

USERS, ITEMS, EACH = 943, 400, 20


def job(folder: Path, *, seed: int = 1, source: str = "real", batch: int = 256, **hyper: str) -> Job:
    key = Key("ncf", "pytorch", "train", "offline", "fp32", batch, 1, "mini", source, "warm", "f8")
    settings = spec.hyperparameters("mini", "f8") | hyper
    return Job(key, "throughput", seed, 0, settings, "cpu", 1, True, 0, 0, str(folder), "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids with gaps, users in no order, the latest rating of each user first in the file."""
    folder = tmp_path_factory.mktemp("ratings")
    lines = []
    for user in reversed(range(USERS)):
        for rating in range(EACH):
            item = (user * 7 + rating * rating * 3) % ITEMS
            lines.append(f"{2 * user + 5}::{3 * item + 2}::4::{978_300_000 - rating}")
    (folder / "ratings.dat").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def ratings(folder: Path) -> Any:
    return open_data(job(folder))


def rated(user: int) -> list[int]:
    return [(user * 7 + rating * rating * 3) % ITEMS for rating in range(EACH)]


def epoch(ratings: Any, number: int) -> dict[str, Any]:
    first = number * ratings.steps_per_epoch
    batches = [ratings.batch(first + step) for step in range(ratings.steps_per_epoch)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_shapes_and_types(ratings: Any) -> None:
    batch = ratings.batch(0)
    shapes = {name: (array.shape, array.dtype.name) for name, array in batch.items()}
    assert shapes == {
        "users": ((256,), "int32"),
        "items": ((256,), "int32"),
        "labels": ((256,), "float32"),
    }
    assert ratings.slot(0) is None
    assert ratings.samples == USERS * (EACH - 1) * 5
    assert ratings.steps_per_epoch == ratings.samples // 256


def test_latest_rating_is_held_out_and_others_are_trained(ratings: Any) -> None:
    seen = epoch(ratings, 0)
    positive = seen["labels"] == 1
    pairs = set(zip(seen["users"][positive].tolist(), seen["items"][positive].tolist(), strict=True))
    expected = {(user, item) for user in range(USERS) for item in rated(user)[1:]}
    assert pairs <= expected
    assert len(expected - pairs) < 256, "more is missing than the incomplete last batch"
    held = {user: rated(user)[0] for user in range(USERS)}
    rows = [
        (u, i) for part in ratings.evaluation() for u, i in zip(part["users"], part["items"], strict=True)
    ]
    assert {int(user): int(items[0]) for user, items in rows} == held


def test_negatives_are_never_training_positives(ratings: Any) -> None:
    seen = epoch(ratings, 0)
    negative = seen["labels"] == 0
    trained = {(user, item) for user in range(USERS) for item in rated(user)[1:]}
    drawn = set(zip(seen["users"][negative].tolist(), seen["items"][negative].tolist(), strict=True))
    assert not drawn & trained
    assert abs(negative.mean() - 0.8) < 0.002
    held = {(user, rated(user)[0]) for user in range(USERS)}
    assert drawn & held, "the held-out positive may be drawn, as in the authors' code"


def test_candidates_are_fixed_distinct_and_unrated(ratings: Any, folder: Path) -> None:
    other = open_data(job(folder, seed=99))
    for mine, its in zip(ratings.evaluation(), other.evaluation(), strict=True):
        assert (mine["items"] == its["items"]).all()
        for user, items in zip(mine["users"], mine["items"], strict=True):
            assert len(set(items.tolist())) == 100
            assert not set(items[1:].tolist()) & set(rated(int(user)))


def test_batch_is_pure_function_of_seed_and_step(ratings: Any, folder: Path) -> None:
    steps = ratings.steps_per_epoch
    later = ratings.batch(3 * steps + 1)
    first = ratings.batch(0)
    fresh = open_data(job(folder))
    assert all((fresh.batch(3 * steps + 1)[name] == later[name]).all() for name in later)
    assert all((fresh.batch(0)[name] == first[name]).all() for name in first)
    assert (first["items"] != ratings.batch(steps)["items"]).any(), "epochs repeat each other"
    assert (first["users"] != open_data(job(folder, seed=2)).batch(0)["users"]).any()


def test_equal_times_are_ordered_by_line() -> None:
    users = np.array([1, 0, 1, 0, 1])
    times = np.array([5, 9, 7, 9, 7])
    assert data.last_of_each(users, times).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1::2::3::4\n5::6::7\n",
            r"ratings\.dat line 2: expected UserID::MovieID::Rating::Timestamp, found '5::6::7'",
        ),
        ("1::2::3::4\n", "expected 943 users and at most 1000 items"),
        ("1::2::3::4\n1::2::x::4\n", "ratings.dat line 2: expected"),
        ("", "line 1: expected ratings, found none"),
    ],
)
def test_error_explains_bad_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ratings.dat").write_text(text)
    with pytest.raises(BadData, match=message):
        open_data(job(tmp_path))


def test_batch_larger_than_epoch_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="expected a global batch of at most the 89585 samples"):
        open_data(job(folder, batch=100_000))


def test_synthetic_data_are_one_batch_for_every_seed(tmp_path: Path) -> None:
    one = open_data(job(tmp_path, source="synthetic", batch=20_000))
    other = open_data(job(tmp_path, source="synthetic", batch=20_000, seed=2))
    batch = one.batch(0)
    assert one.slot(0) == one.slot(77) == 0
    assert all((batch[name] == other.batch(50)[name]).all() for name in batch)
    assert abs(float(batch["labels"].mean()) - 0.2) < 0.01
    assert batch["users"].min() >= 0
    assert batch["users"].max() == 942
    assert batch["items"].max() == 999
    popular = batch["items"][batch["labels"] == 1]
    assert abs((popular < 100).mean() - 0.1 ** (1 / 3)) < 0.03
    with pytest.raises(ValueError, match="data=real"):
        next(one.evaluation())
