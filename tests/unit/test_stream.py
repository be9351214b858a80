"""The stream's normal and uniform numbers, compared with their definition."""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

from suite.common import weights
from suite.common.stream import Stream
from suite.contract import Parameter

COUNTS = (0, 1, 8_191, 8_192, 8_193, 98_304, 200_000)


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


@pytest.mark.parametrize("init", ["normal", "uniform"])
def test_weights_are_drawn_in_parts_by_several_threads(init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = Parameter("w", (30_000,), init, "0.1")
    draw = getattr(Stream, init)
    alone = draw(Stream("weights", "toy", "w"), parameter.size, 0.1)
    threads: set[int] = set()

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        time.sleep(0.05)  # one thread alone could otherwise draw all parts
        return draw(*arguments)

    monkeypatch.setattr(Stream, init, noted)
    monkeypatch.setattr(weights, "_PART", 1000)  # not a multiple of the blocks
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    ((name, together),) = weights.initial("toy", [parameter])
    assert name == "w"
    assert len(threads) == 3
    assert threading.get_ident() not in threads
    np.testing.assert_array_equal(together, alone)
