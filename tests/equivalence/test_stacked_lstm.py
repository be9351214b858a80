"""Triton's LSTM kernels compute what PyTorch's LSTM computes, with dropout between layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suite.environments import environments
from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run, triton_packages


def test_kernels_equal_pytorch(tmp_path: Path) -> None:
    file = tmp_path / "stacked.npz"
    done = run("pytorch", "tests.equivalence.stacked_lstm", str(file), triton_packages())
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        apart = {name: in_norm(*arrays[name]) for name in arrays.files}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    assert len(apart) == 96
    bounds = {name: 5e-3 if name.startswith("half") else 1e-12 for name in apart}
    assert {name: value for name, value in apart.items() if not value <= bounds[name]} == {}


@pytest.mark.gpu
def test_one_launch_equals_launches_of_waves_on_a_gpu() -> None:
    if environments.accelerator() != "cuda":
        pytest.skip("no NVIDIA GPU answers")
    done = run("pytorch", "tests.equivalence.gpu_stacked_lstm", accelerator="cuda")
    if done.returncode == 5:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
