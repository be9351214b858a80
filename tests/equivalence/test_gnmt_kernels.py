"""GNMT's fast kernels compute what its plain operators compute."""

from __future__ import annotations

from pathlib import Path

from tests.equivalence.kernel_arrays import against_plain


def test_fast_kernels_equal_plain_operators(tmp_path: Path) -> None:
    found, apart = against_plain("tests.equivalence.gnmt_kernels", "fast", tmp_path)
    assert found["used"].tolist() == [
        "_loss_backward",
        "_loss_forward",
        "_score_backward_keys",
        "_score_backward_queries",
        "_score_backward_vector",
        "_score_forward",
    ]
    assert len(apart) == 38
    assert {name: value for name, value in apart.items() if not value <= 1e-10} == {}
