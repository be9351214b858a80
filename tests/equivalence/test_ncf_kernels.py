"""NCF's kernels for a GPU compute what its plain operators compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.equivalence.interpreters import run, triton_packages
from tests.equivalence.kernel_arrays import against_plain

BOUNDS = {"fp64": 1e-13, "fp32": 1e-5}


def test_kernels_equal_plain_operators(tmp_path: Path) -> None:
    module = "tests.equivalence.ncf_kernels"
    found, apart = against_plain(module, "kernels", tmp_path, triton_packages())
    assert len(apart) == 7 * (1 + 12) + 3
    assert {name: value for name, value in apart.items() if not value <= BOUNDS[name[:4]]} == {}
    assert all(np.any(found[f"kernels/{name}"]) for name in apart)


def test_kernels_compile_for_a_gpu() -> None:
    """In float64 ``_backward`` was refused: a constant was assigned in a loop."""
    done = run("pytorch", "tests.equivalence.ncf_compiled", triton_packages())
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("compiled ") == 8
