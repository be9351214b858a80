"""The stream's normal and uniform numbers, compared with their definition."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from suite.common import stream
from suite.common.stream import Stream

COUNTS = (0, 1, 16_383, 16_384, 16_385, 40_000)


@pytest.mark.parametrize("count", COUNTS)
def test_normal_sums_twelve_draws(count: int) -> None:
    stream = Stream("test", "normal")
    draws = stream.unit(12 * count).reshape(count, 12)
    total = np.zeros(count)
    for column in draws.T:
        total += column
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the intended overflow must not warn
        numbers = stream.normal(count, 0.02)
    assert numbers.tobytes() == ((total - 6.0) * 0.02).astype(np.float32).tobytes()


@pytest.mark.parametrize("count", COUNTS)
def test_uniform_scales_one_draw(count: int) -> None:
    stream = Stream("test", "uniform")
    expected = ((stream.unit(count) * 2.0 - 1.0) * 0.3).astype(np.float32)
    assert stream.uniform(count, 0.3).tobytes() == expected.tobytes()


@pytest.mark.parametrize("draw", ["normal", "uniform"])
def test_threads_do_not_change_draws(draw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * stream._CHUNK + 7
    alone = getattr(Stream("weights", "w"), draw)(count, 0.1)
    threads: set[int] = set()
    whole = stream._sum_of_twelve if draw == "normal" else Stream.unit

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return whole(*arguments)

    monkeypatch.setattr(stream if draw == "normal" else Stream, whole.__name__, noted)
    monkeypatch.setattr(stream, "_PART", stream._CHUNK)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    together = getattr(Stream("weights", "w"), draw)(count, 0.1)
    assert threading.get_ident() not in threads
    np.testing.assert_array_equal(together, alone)
