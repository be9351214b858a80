"""Finds each framework's interpreter and runs modules in it."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.environments import environments
from tests.equivalence.forks import Forks

ROOT = Path(__file__).resolve().parents[2]
_FORKS: dict[tuple[str, int], Forks] = {}


def find(framework: str, accelerator: str = "cpu") -> Path | None:
    """The interpreter of ``SUITE_PYTHON_<FRAMEWORK>``, else of the environment; None without either."""
    if given := os.environ.get(f"SUITE_PYTHON_{framework.upper()}"):
        return Path(given)
    plan = environments.plan(framework, accelerator)
    return plan.python if plan.ready else None


def interpreter(framework: str, accelerator: str = "cpu") -> Path:
    """The interpreter of ``framework``; skips the test where there is none."""
    python = find(framework, accelerator)
    if python is None:
        variable = f"SUITE_PYTHON_{framework.upper()}"
        pytest.skip(f"no environment for {framework}: make test makes it, or set {variable}")
    return python


def triton_packages() -> str:
    """The folder with Triton, whose interpreter runs kernels of a GPU on the CPU; skips the test without it.

    PyTorch's builds for the CPU bring no Triton.
    """
    plan = environments.tools_plan("triton")
    if not plan.ready:
        pytest.skip("no environment for Triton: python -m suite environments triton")
    return str(plan.packages_folder)


def run(
    framework: str,
    module: str,
    *arguments: str,
    accelerator: str = "cpu",
    threads: int = 1,
    timeout: float = 900,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module arguments`` in the framework's interpreter, by default on one CPU thread.

    It runs in a fork of a process that has imported the framework.
    """
    python = str(interpreter(framework, accelerator))
    forks = _FORKS.get((python, threads))
    if forks is None or not forks.alive:
        settings = {
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "XDG_CACHE_HOME": _compiled(),
            "PYTHONPATH": str(ROOT),
        }
        if accelerator == "cpu":
            settings["CUDA_VISIBLE_DEVICES"] = ""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        argv = [python, "-m", "tests.equivalence.forks", framework]
        forks = _FORKS[python, threads] = Forks(argv, kept | settings, ROOT)
    code, out, errors = forks.run(module, arguments, timeout)
    return subprocess.CompletedProcess([python, "-m", module, *arguments], code, out, errors)


@cache
def _compiled() -> str:
    """A folder for what JAX compiles, that of tests/conftest.py or one until this process ends.

    Many modules make the same pair.
    """
    if shared := os.environ.get("SUITE_TESTS_COMPILED"):
        return shared
    folder = tempfile.TemporaryDirectory(prefix="suite-compiled-")
    atexit.register(folder.cleanup)
    return folder.name


def arrays_of(module: str, folder: Path) -> Callable[[str], dict[str, Any]]:
    """A function from framework to the arrays that ``module`` writes in its interpreter; each runs once."""

    @cache
    def of(framework: str) -> dict[str, Any]:
        file = folder / f"{framework}.npz"
        result = run(framework, module, framework, str(file))
        assert result.returncode == 0, result.stderr[-4000:]
        with np.load(file) as arrays:
            return dict(arrays)

    return of
