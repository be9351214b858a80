"""TensorFlow on a GPU needs NVRTC: its environment brings it, the worker loads it, the doctor misses it."""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from suite.doctor import libraries
from suite.doctor.model import FAIL, OK, SKIP
from suite.environments import environments
from tests.unit.doctor_subject import H100, states, subject

ROOT = Path(__file__).resolve().parents[2]
NAME = "libnvrtc.so.12"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The finished environment for TensorFlow on a GPU, without packages."""
    for path in ("containers/tensorflow/requirements-cuda.txt", "containers/sizes.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    plan = environments.plan("tensorflow", "cuda")
    plan.python.parent.mkdir(parents=True)
    plan.python.touch(mode=0o755)
    (plan.folder / environments.STAMP).write_text(json.dumps({"lock": plan.digest}))
    return plan.folder


def packages(environment: Path) -> Path:
    return environment / "lib/python3.11/site-packages"


def make_library(packages: Path) -> Path:
    """A shared library with the name of NVRTC where its wheel has it."""
    file = packages / "nvidia/cuda_nvrtc/lib" / NAME
    file.parent.mkdir(parents=True)
    command = ["gcc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{NAME}", "-o", str(file)]
    subprocess.run(command, check=True)
    return file


def check(**fields: object) -> dict[str, str]:
    return states(libraries.loadable(subject(look=lambda: H100, **fields)))


@pytest.mark.skipif(find_library("nvrtc") is not None, reason="NVRTC is on the loader's path")
def test_environment_without_nvrtc_is_seen(environment: Path) -> None:
    (found,) = libraries.loadable(subject(look=lambda: H100))
    assert (found.name, found.state) == ("GPU libraries tensorflow", FAIL)
    assert "expected libnvrtc in tensorflow-cuda or on the loader's path, found none" in found.found
    assert f"rm -r {environment}" in found.fix


def test_environment_with_nvrtc_is_complete(environment: Path) -> None:
    make_library(packages(environment))
    assert check() == {"GPU libraries tensorflow": OK}
    assert check(frameworks=("pytorch",)) == {}


def test_environment_that_is_not_made_is_no_failure(environment: Path) -> None:
    (environment / environments.STAMP).unlink()
    assert check() == {"GPU libraries tensorflow": SKIP}


def test_machine_without_gpu_needs_no_libraries() -> None:
    assert states(libraries.loadable(subject())) == {"GPU libraries": SKIP}


def test_lock_of_tensorflow_brings_nvrtc() -> None:
    lock = (ROOT / "containers/tensorflow/requirements-cuda.txt").read_text()
    assert "\nnvidia-cuda-nvrtc-cu12==" in lock


PROGRAM = """
import ctypes, sys
from pathlib import Path
from suite.frameworks.tensorflow.libraries import load_libraries
before = after = True
try:
    ctypes.CDLL("libnvrtc.so.12")
except OSError:
    before = False
loaded = load_libraries(Path(sys.argv[1]))
try:
    ctypes.CDLL("libnvrtc.so.12")
except OSError:
    after = False
print(before, after, len(loaded), "tensorflow" in sys.modules)
"""


@pytest.mark.skipif(find_library("nvrtc") is not None, reason="NVRTC is on the loader's path")
def test_worker_loads_the_library_that_cudnn_looks_for_by_name(tmp_path: Path) -> None:
    make_library(tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "1", "False"]
