"""word2vec's ways of a GPU compute what its plain operators compute."""

from __future__ import annotations

import json
from pathlib import Path

from tests.equivalence.interpreters import run, triton_packages
from tests.equivalence.kernel_arrays import against_plain

BOUNDS = {"fp64": 1e-12, "fp32": 1e-5}


def test_kernels_equal_plain_operators(tmp_path: Path) -> None:
    module = "tests.equivalence.word2vec_kernels"
    _, apart = against_plain(module, "kernels", tmp_path, triton_packages())
    assert len(apart) == 28
    assert {name: value for name, value in apart.items() if not value <= BOUNDS[name[:4]]} == {}


def test_nearest_words_are_those_of_topk() -> None:
    done = run("pytorch", "tests.equivalence.word2vec_nearest")
    assert done.returncode == 0, done.stderr[-4000:]
    tied, apart = map(json.loads, done.stdout.splitlines())
    assert apart == {"difference": 0, "have": True, "same": True}
    assert tied["difference"] == 0
    assert tied["have"]
