"""The kernels of the first convolution compute PyTorch's output and gradients, alone and in the layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.equivalence.interpreters import triton_packages
from tests.equivalence.kernel_arrays import written_by

# Relative to the norm, of float32 sums that are rounded to the type.
BOUNDS = {"layer": 1e-13, "torch.float64": 1e-13, "torch.float16": 4e-4}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("convolutions")
    return written_by("tests.equivalence.first_convolutions", folder, triton_packages())


def test_kernels_equal_pytorch(arrays: dict[str, Any]) -> None:
    compared = [name.removesuffix("/plain") for name in arrays if name.endswith("/plain")]
    assert len(compared) == (5 * 2 + 1) * 2 + (3 * 2 + 1) * 3
    for name in compared:
        ours, plain = arrays[f"{name}/ours"], arrays[f"{name}/plain"]
        apart = float(np.linalg.norm(ours - plain)) / float(np.linalg.norm(plain))
        assert apart < BOUNDS[name.split(" ")[0].strip(",")], name
