"""The stream's normal and uniform numbers, against what they are defined as, draw by draw."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from suite.common.stream import Stream

COUNTS = (0, 1, 16_383, 16_384, 16_385, 40_000)


@pytest.mark.parametrize("count", COUNTS)
def test_a_normal_number_is_the_sum_of_twelve_draws(count: int) -> None:
    stream = Stream("test", "normal")
    draws = stream.unit(12 * count).reshape(count, 12)
    total = np.zeros(count)
    for column in draws.T:
        total += column
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of overflow, which is meant, nobody is told
        found = stream.normal(count, 0.02)
    assert found.tobytes() == ((total - 6.0) * 0.02).astype(np.float32).tobytes()


@pytest.mark.parametrize("count", COUNTS)
def test_a_uniform_number_is_one_draw(count: int) -> None:
    stream = Stream("test", "uniform")
    wanted = ((stream.unit(count) * 2.0 - 1.0) * 0.3).astype(np.float32)
    assert stream.uniform(count, 0.3).tobytes() == wanted.tobytes()
