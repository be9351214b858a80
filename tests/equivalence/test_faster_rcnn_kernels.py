"""Faster R-CNN's Triton kernels compute what its plain operations do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.equivalence.interpreters import triton_packages
from tests.equivalence.kernel_arrays import written_by


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    module = "tests.equivalence.faster_rcnn_kernels"
    return written_by(module, tmp_path_factory.mktemp("kernels"), triton_packages())


def pairs(arrays: dict[str, Any], kind: str) -> dict[str, tuple[Any, Any]]:
    names = {name.rpartition("/")[0] for name in arrays if name.startswith(f"{kind} ")}
    return {name: (arrays[f"{name}/ours"], arrays[f"{name}/plain"]) for name in names}


def test_pooling_and_its_gradient_equal_the_plain_ones(arrays: dict[str, Any]) -> None:
    compared = pairs(arrays, "pool")
    assert len(compared) == 8
    for name, (ours, plain) in compared.items():
        assert np.abs(plain).max() > 0.5, name
        bound = 5e-3 if "float16" in name else 1e-13
        assert np.allclose(ours, plain, rtol=bound, atol=bound), name


def test_survivors_of_suppression_are_the_same(arrays: dict[str, Any]) -> None:
    compared = pairs(arrays, "suppress")
    assert len(compared) == 8
    assert [name for name, two in compared.items() if not np.array_equal(*two)] == []
    assert all(0 < plain.sum() < plain.size for _, plain in compared.values())
    rounds = [compared[f"suppress 33 {rounds} False torch.float64"][1].sum() for rounds in (1, 3)]
    assert rounds[0] < rounds[1], "the case does not need more than one round"


def test_matches_of_anchors_are_the_same(arrays: dict[str, Any]) -> None:
    compared = pairs(arrays, "match")
    assert len(compared) == 6
    assert [name for name, two in compared.items() if not np.array_equal(*two)] == []
    best, index, nearest = (
        compared[f"match {part} torch.float32"][1] for part in ("best", "index", "nearest")
    )
    assert (best.min(), best.max()) == (-1, 1 << 16)
    assert set(index[0]) == {0, 2, 3}
    assert nearest[0, 20] == nearest[0, 720] == 1
    assert nearest[1].sum() == 0
