"""word2vec's ways of a GPU compute what its plain operators compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run, triton_packages

BOUNDS = {"fp64": 1e-12, "fp32": 1e-5}


def test_kernels_equal_plain_operators(tmp_path: Path) -> None:
    file = tmp_path / "kernels.npz"
    done = run("pytorch", "tests.equivalence.word2vec_kernels", str(file), triton_packages())
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        found = dict(arrays)
    names = [name.removeprefix("plain/") for name in found if name.startswith("plain/")]
    assert len(names) == 28
    apart = {name: in_norm(found[f"plain/{name}"], found[f"kernels/{name}"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    assert {name: value for name, value in apart.items() if not value <= BOUNDS[name[:4]]} == {}


def test_nearest_words_are_those_of_topk() -> None:
    done = run("pytorch", "tests.equivalence.word2vec_nearest")
    assert done.returncode == 0, done.stderr[-4000:]
    tied, apart = map(json.loads, done.stdout.splitlines())
    assert apart == {"difference": 0, "have": True, "same": True}
    assert tied["difference"] == 0
    assert tied["have"]
