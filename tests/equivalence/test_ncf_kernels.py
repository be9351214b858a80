"""NCF's kernels for training on a GPU compute what its plain operators compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run, triton_packages

BOUNDS = {"fp64": 1e-13, "fp32": 1e-5}


def test_kernels_equal_plain_operators(tmp_path: Path) -> None:
    file = tmp_path / "kernels.npz"
    done = run("pytorch", "tests.equivalence.ncf_kernels", str(file), triton_packages())
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        found = dict(arrays)
    names = [name.removesuffix("/plain") for name in found if name.endswith("/plain")]
    assert len(names) == 7 * (1 + 12)
    apart = {name: in_norm(found[f"{name}/plain"], found[f"{name}/ours"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    assert {name: value for name, value in apart.items() if not value <= BOUNDS[name[:4]]} == {}
    assert all(np.any(found[f"{name}/ours"]) for name in names)


def test_kernels_compile_for_a_gpu() -> None:
    """In float64 ``_backward`` was refused: a constant was assigned in a loop."""
    done = run("pytorch", "tests.equivalence.ncf_compiled", triton_packages())
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("compiled ") == 4
