"""The layers that pairs compute in another way than the framework itself: the same values and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.equivalence.interpreters import arrays_of


def compared(found: Mapping[str, NDArray[Any]]) -> int:
    """The number of arrays, each compared with that of the framework."""
    names = [name.removesuffix("/ours") for name in found if name.endswith("/ours")]
    for name in names:
        ours, plain = found[f"{name}/ours"], found[f"{name}/plain"]
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-11 * np.abs(plain).max(), err_msg=name)
    return len(names)


def test_layers_equal_those_of_pytorch(tmp_path: Path) -> None:
    found = arrays_of("tests.equivalence.written_gradients", tmp_path)("pytorch")
    assert compared(found) == 5 * 3  # output and gradients of convolutions


def test_layers_equal_those_of_jax(tmp_path: Path) -> None:
    found = arrays_of("tests.equivalence.written_gradients", tmp_path)("jax")
    assert compared(found) == 5 * 3 + 12 * 2 + 4  # also of pools and normalisation
    # In training a network that yields NaN must not lose it in a maximum.
    assert np.isnan(found["nan"]).sum() == 1
    assert np.isnan(found["nan"])[0, 1, 1, 0]
