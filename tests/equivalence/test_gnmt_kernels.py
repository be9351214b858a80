"""GNMT's fast kernels compute what its plain operators compute."""

from __future__ import annotations

from pathlib import Path

from tests.equivalence.interpreters import triton_packages
from tests.equivalence.kernel_arrays import against_plain

BOUNDS = {"torch.float16": 1e-3, "torch.bfloat16": 8e-3}  # of gradients, which are rounded to these types


def test_fast_kernels_equal_plain_operators(tmp_path: Path) -> None:
    found, apart = against_plain("tests.equivalence.gnmt_kernels", "fast", tmp_path, triton_packages())
    assert found["used"].tolist() == ["_loss_backward", "_loss_forward", "fast_score"]
    assert len(apart) == 38 + 3 * 3 * 4
    bounds = {name: BOUNDS.get(name.split()[0], 1e-10) for name in apart}
    assert {name: value for name, value in apart.items() if not value <= bounds[name]} == {}
