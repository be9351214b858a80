"""What a worker remembers of its batches: digests of what steps were given, in bounded memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from suite.common.stream import Stream, digest_arrays
from suite.contract import BadData
from suite.worker import record
from suite.worker.sample import VALUES, Sample

SHAPE = (64, 32, 32)


class Read:
    """Batches that are read: a pure function of the step, until ``changed`` tells otherwise."""

    steps_per_epoch = 50

    def __init__(self) -> None:
        self.changed = 0
        self.handed: list[weakref.ref[Any]] = []

    def slot(self, step: int) -> int | None:
        del step
        return None

    def batch(self, step: int) -> dict[str, Any]:
        values = Stream("batches", step).bits(SHAPE[0] * SHAPE[1] * SHAPE[2] // 8).view(np.uint8)
        images = values.reshape(SHAPE)
        if self.changed:
            images[-self.changed :] ^= 1
        self.handed.append(weakref.ref(images))
        return {"images": images, "labels": np.arange(step, step + SHAPE[0], dtype=np.int32)}

    def evaluation(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def alive(self) -> int:
        """How many batches of those handed out somebody still holds."""
        gc.collect()
        return sum(reference() is not None for reference in self.handed)


class Staged(Read):
    """A synthetic cycle of two."""

    def slot(self, step: int) -> int:
        return step % 2


def test_digests_are_of_the_batches_whether_kept_or_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Read()
    wanted = [digest_arrays(source.batch(step)) for step in range(12)]
    monkeypatch.setattr(record, "KEPT_BYTES", 3 * 66_000)
    data = record.RecordingData(Read())
    for step in range(12):
        data.batch(step)
    assert [data.digest(step) for step in range(12)] == wanted
    assert len(set(wanted)) == 12


def test_memory_is_bounded_however_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "KEPT_BYTES", 3 * 66_000)
    source = Read()
    data = record.RecordingData(source)
    for step in range(110):
        data.batch(step)
    assert source.alive() == 3  # 65,792 bytes each
    data.forget()
    assert source.alive() == 0
    data.batch(0)
    assert source.alive() == 1, "what was forgotten still counts"


def test_nothing_is_hashed_while_steps_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(arrays: object) -> str:
        raise AssertionError("hashed inside the window")

    monkeypatch.setattr(record, "digest_arrays", hashed)
    monkeypatch.setattr(record, "KEPT_BYTES", 66_000)
    data = record.RecordingData(Read())
    for step in range(4):
        data.batch(step)
    with pytest.raises(AssertionError, match="hashed"):
        data.digest(3)


@pytest.mark.parametrize("images", [1, 64])
def test_a_batch_that_is_another_one_when_read_again_is_told(
    images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "KEPT_BYTES", 0)
    source = Read()
    data = record.RecordingData(source)
    for step in range(3):
        data.batch(step)
    assert data.digest(0)
    source.changed = images
    with pytest.raises(BadData, match="images of step 1: expected what the step was given"):
        data.digest(1)


def test_the_tail_does_not_replace_what_the_window_was_given() -> None:
    source = Read()
    data = record.RecordingData(source)
    wanted = digest_arrays(data.batch(0))
    source.changed = 1
    assert digest_arrays(data.batch(0)) != wanted
    assert data.digest(0) == wanted


def test_staged_batches_stay() -> None:
    source = Staged()
    data = record.RecordingData(source)
    first, second = (digest_arrays(data.batch(step)) for step in range(2))
    data.forget()
    assert [data.digest(step) for step in range(4)] == [first, second, first, second]


def test_quality_runs_remember_nothing() -> None:
    source = Read()
    data = record.RecordingData(source, recording=False)
    for step in range(5):
        data.batch(step)
    assert source.alive() == 0
    assert data.wait_ns > 0


@pytest.mark.parametrize("size", [1, 7, VALUES, 10 * VALUES + 3])
@pytest.mark.parametrize("step", [0, 5])
def test_every_stretch_of_a_sampled_array_is_met(size: int, step: int) -> None:
    stretch = 2 * max(1, size // VALUES)
    values = np.zeros(size, np.float32)
    sample = Sample.of(step, {"a": values})
    for start in range(0, size, stretch):
        changed = values.copy()
        changed[max(0, min(start, size - stretch)) :][:stretch] = 1
        assert sample.other({"a": changed}) == "a"
    assert sample.other({"a": values.copy()}) is None


def test_other_types_shapes_and_names_are_other_arrays() -> None:
    sample = Sample.of(0, {"a": np.zeros((2, 3), np.int32)})
    assert sample.other({"a": np.zeros((3, 2), np.int32)}) == "a"
    assert sample.other({"a": np.zeros((2, 3), np.float32)}) == "a"
    assert sample.other({"b": np.zeros((2, 3), np.int32)}) == "a"


def test_a_view_is_sampled_without_being_copied() -> None:
    whole = np.arange(10_000).reshape(100, 100)
    view = whole.T[::2]
    assert Sample.of(1, {"a": view}).other({"a": np.ascontiguousarray(view)}) is None
