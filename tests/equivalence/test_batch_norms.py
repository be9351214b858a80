"""Batch normalisation by Triton's kernels computes what PyTorch's does, alone and in the suite's layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.equivalence.interpreters import triton_packages
from tests.equivalence.kernel_arrays import written_by

# By case, the parts in half precision: the output and the gradients of images; before them are statistics.
IN_HALF = {"relu": (0, 4), "sum": (0, 4, 5), "both": (0, 7, 8)}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return written_by("tests.equivalence.batch_norms", tmp_path_factory.mktemp("norms"), triton_packages())


def differences(arrays: dict[str, Any], precision: str) -> dict[str, float]:
    """Of each compared pair: the norm of the difference, relative to that of the plain one."""
    found = {}
    for name, ours in arrays.items():
        case, _, way = name.rpartition("/")
        if way == "ours" and case.startswith(precision):
            plain = arrays[f"{case}/plain"]
            found[case] = float(np.linalg.norm(ours - plain)) / max(float(np.linalg.norm(plain)), 1e-12)
    return found


def test_kernels_equal_pytorch_in_float64(arrays: dict[str, Any]) -> None:
    found = differences(arrays, "fp64")
    assert len(found) == 2 * 5 * 3 * 7 + 2 * 5 * 3 * 8 + 5 * 3 * 13 + 3 * (1 + 20 + 1 + 30)
    assert {name: value for name, value in found.items() if not value < 1e-10} == {}


def test_half_precision_rounds_only_inputs_and_outputs(arrays: dict[str, Any]) -> None:
    found = differences(arrays, "half")
    assert len(found) == 2 * 2 * 7 + 2 * 2 * 8 + 2 * 13
    for name, value in found.items():
        case, part = name.split(" ")[1], int(name.rpartition("/")[2])
        image = part in IN_HALF[case]
        assert value < (4e-3 if image else 1e-5), name
