"""GNMT's fast kernels compute what its plain operators compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run


def test_fast_kernels_equal_plain_operators(tmp_path: Path) -> None:
    file = tmp_path / "kernels.npz"
    done = run("pytorch", "tests.equivalence.gnmt_kernels", str(file))
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        found = dict(arrays)
    assert found["used"].tolist() == [
        "_loss_backward",
        "_loss_forward",
        "_score_backward_keys",
        "_score_backward_queries",
        "_score_backward_vector",
        "_score_forward",
    ]
    names = [name.removeprefix("plain/") for name in found if name.startswith("plain/")]
    assert len(names) == 38
    apart = {name: in_norm(found[f"plain/{name}"], found[f"fast/{name}"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    assert {name: value for name, value in apart.items() if not value <= 1e-10} == {}
