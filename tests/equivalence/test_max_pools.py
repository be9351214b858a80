"""Max pooling by Triton's kernels computes what PyTorch's does, and a ReLU may follow it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.equivalence.interpreters import triton_packages
from tests.equivalence.kernel_arrays import written_by


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return written_by("tests.equivalence.max_pools", tmp_path_factory.mktemp("pools"), triton_packages())


def pairs(arrays: dict[str, Any], relus: bool) -> dict[str, tuple[Any, Any]]:
    names = {name.rpartition("/")[0] for name in arrays if name.startswith("relu ") == relus}
    return {name: (arrays[f"{name}/ours"], arrays[f"{name}/plain"]) for name in names}


def test_relu_behind_a_pool_changes_no_bit(arrays: dict[str, Any]) -> None:
    compared = pairs(arrays, relus=True)
    assert len(compared) == 4
    assert [name for name, two in compared.items() if not np.array_equal(*two, equal_nan=True)] == []
    assert np.isnan(arrays["relu ties/output/ours"]).any()


def test_kernels_equal_pytorch(arrays: dict[str, Any]) -> None:
    compared = pairs(arrays, relus=False)
    assert len(compared) == 36
    for name, two in compared.items():
        bound = 2e-3 if name.startswith("fp16/gradient") else 1e-14
        assert np.allclose(*two, rtol=0, atol=bound, equal_nan=True), name
    assert np.isnan(arrays["(3, 14, 13) [3, 2, 1] False ties/output/ours"]).any()
