"""In PyTorch a rank's arrival at the exchange is recorded when its last gradient is there, once a step."""

from __future__ import annotations

import json

import pytest

from tests.equivalence.interpreters import run


def test_hook_runs_once_behind_the_last_gradient() -> None:
    result = run("pytorch", "tests.equivalence.last_gradient")
    assert result.returncode == 0, result.stderr[-4000:]
    assert json.loads(result.stdout) == {"complete": [True, True, True]}


@pytest.mark.gpu
def test_arrivals_on_a_gpu_are_on_the_hosts_clock() -> None:
    result = run("pytorch", "tests.equivalence.gpu_arrivals", accelerator="cuda")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
