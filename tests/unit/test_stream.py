"""The stream's normal and uniform numbers, compared with their definition."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

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
