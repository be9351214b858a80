"""A worker records the digests of the batches that steps read, in bounded memory."""

from __future__ import annotations

import gc
import time
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
    """Batches that are read: a pure function of the step, except for the last ``changed`` images."""

    steps_per_epoch = 50

    def __init__(self) -> None:
        self.changed = 0
        self.returned: list[weakref.ref[Any]] = []

    def slot(self, step: int) -> int | None:
        del step
        return None

    def batch(self, step: int) -> dict[str, Any]:
        values = Stream("batches", step).bits(SHAPE[0] * SHAPE[1] * SHAPE[2] // 8).view(np.uint8)
        images = values.reshape(SHAPE)
        if self.changed:
            images[-self.changed :] ^= 1
        self.returned.append(weakref.ref(images))
        return {"images": images, "labels": np.arange(step, step + SHAPE[0], dtype=np.int32)}

    def evaluation(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def alive(self) -> int:
        """The number of returned batches that are still referenced."""
        gc.collect()
        return sum(reference() is not None for reference in self.returned)


class Staged(Read):
    """A synthetic cycle of two."""

    def slot(self, step: int) -> int:
        return step % 2


def test_digests_are_equal_for_kept_and_reread_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Read()
    expected = [digest_arrays(source.batch(step)) for step in range(12)]
    monkeypatch.setattr(record, "KEPT_BYTES", 3 * 66_000)
    data = record.RecordingData(Read())
    for step in range(12):
        data.batch(step)
    assert data.digests(range(12)) == expected
    assert len(set(expected)) == 12


def test_recorded_batches_have_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "KEPT_BYTES", 3 * 66_000)
    source = Read()
    data = record.RecordingData(source)
    for step in range(110):
        data.batch(step)
    assert source.alive() == 3  # 65,792 bytes each
    data.forget()
    assert source.alive() == 0
    data.batch(0)
    assert source.alive() == 1, "forget() does not reset the count of bytes"


def test_batches_are_hashed_only_for_their_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(arrays: object) -> str:
        raise AssertionError("hashed inside the window")

    monkeypatch.setattr(record, "digest_arrays", hashed)
    monkeypatch.setattr(record, "KEPT_BYTES", 66_000)
    data = record.RecordingData(Read())
    for step in range(4):
        data.batch(step)
    with pytest.raises(AssertionError, match="hashed"):
        data.digests([3])


def test_threads_hash_batches_in_bounded_memory_while_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "KEPT_BYTES", 3 * 66_000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    source = Read()
    data = record.RecordingData(source)
    for step in range(40):
        data.batch(step)
    alive, deadline = [], time.monotonic() + 30

    def hashed(arrays: dict[str, Any]) -> str:
        while len(source.returned) < 41 and time.monotonic() < deadline:
            time.sleep(0.001)  # until the first batch that was not kept is read again
        assert len(source.returned) >= 41
        alive.append(source.alive())
        return digest_arrays(arrays)

    monkeypatch.setattr(record, "digest_arrays", hashed)
    assert data.digests(range(40)) == [digest_arrays(Read().batch(step)) for step in range(40)]
    assert max(alive) <= 5  # three in the bound, one above it, one being read


@pytest.mark.parametrize("images", [1, 64])
def test_digest_reports_a_batch_that_changed(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "KEPT_BYTES", 0)
    source = Read()
    data = record.RecordingData(source)
    for step in range(3):
        data.batch(step)
    assert data.digests([0])
    source.changed = images
    with pytest.raises(BadData, match="images of step 1: expected the values that the step used"):
        data.digests([1])


def test_telemetry_tail_does_not_replace_recorded_batches() -> None:
    source = Read()
    data = record.RecordingData(source)
    expected = digest_arrays(data.batch(0))
    source.changed = 1
    assert digest_arrays(data.batch(0)) != expected
    assert data.digests([0])[0] == expected


def test_forget_keeps_staged_batches() -> None:
    source = Staged()
    data = record.RecordingData(source)
    first, second = (digest_arrays(data.batch(step)) for step in range(2))
    data.forget()
    assert data.digests(range(4)) == [first, second, first, second]


def test_quality_runs_record_no_batches() -> None:
    source = Read()
    data = record.RecordingData(source, recording=False)
    for step in range(5):
        data.batch(step)
    assert source.alive() == 0
    assert data.wait_ns > 0


@pytest.mark.parametrize("size", [1, 7, VALUES, 10 * VALUES + 3])
@pytest.mark.parametrize("step", [0, 5])
def test_sample_detects_a_change_of_any_contiguous_part(size: int, step: int) -> None:
    length = 2 * max(1, size // VALUES)
    values = np.zeros(size, np.float32)
    sample = Sample.of(step, {"a": values})
    for start in range(0, size, length):
        changed = values.copy()
        changed[max(0, min(start, size - length)) :][:length] = 1
        assert sample.first_difference({"a": changed}) == "a"
    assert sample.first_difference({"a": values.copy()}) is None


def test_sample_detects_other_types_shapes_and_names() -> None:
    sample = Sample.of(0, {"a": np.zeros((2, 3), np.int32)})
    assert sample.first_difference({"a": np.zeros((3, 2), np.int32)}) == "a"
    assert sample.first_difference({"a": np.zeros((2, 3), np.float32)}) == "a"
    assert sample.first_difference({"b": np.zeros((2, 3), np.int32)}) == "a"


def test_sample_of_a_view_equals_that_of_its_copy() -> None:
    whole = np.arange(10_000).reshape(100, 100)
    view = whole.T[::2]
    assert Sample.of(1, {"a": view}).first_difference({"a": np.ascontiguousarray(view)}) is None
