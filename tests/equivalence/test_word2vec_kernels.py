"""word2vec's ways of a GPU compute what its plain operators compute."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import ROOT, interpreter, run

BOUNDS = {"fp64": 1e-12, "fp32": 1e-5}


def test_kernels_equal_plain_operators(tmp_path: Path) -> None:
    file = tmp_path / "kernels.npz"
    # In a process of its own: Triton reads the variable when it is imported, which PyTorch may do.
    done = subprocess.run(
        [interpreter("pytorch"), "-m", "tests.equivalence.word2vec_kernels", file],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    if done.stdout == "no Triton\n":
        pytest.skip("the environment of pytorch has no Triton, as in CPU builds")
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
