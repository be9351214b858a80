"""Helpers of the framework modules."""

from __future__ import annotations

import numpy as np
import pytest

from suite.frameworks.common import as_float32


@pytest.mark.parametrize("rate", [0.1, 0.0005, 1.0, 0.256])
def test_as_float32_rounds_a_rate(rate: float) -> None:
    assert as_float32(rate) == np.float32(rate)
    assert as_float32(as_float32(rate)) == as_float32(rate)
