"""The layers that JAX's pairs compute in another way than JAX itself: the same values and gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.equivalence.interpreters import arrays_of


def test_layers_equal_those_of_jax(tmp_path: Path) -> None:
    found = arrays_of("tests.equivalence.written_gradients", tmp_path)("jax")
    names = [name.removesuffix("/ours") for name in found if name.endswith("/ours")]
    assert len(names) == 5 * 3 + 12 * 2 + 4  # output and gradients of convolutions, pools, normalisation
    for name in names:
        ours, plain = found[f"{name}/ours"], found[f"{name}/plain"]
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-11 * np.abs(plain).max(), err_msg=name)
    # In training a network that yields NaN must not lose it in a maximum.
    assert np.isnan(found["nan"]).sum() == 1
    assert np.isnan(found["nan"])[0, 1, 1, 0]
