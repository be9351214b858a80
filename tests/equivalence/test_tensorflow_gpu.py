"""TensorFlow's code for GPUs, on the CPU: the LSTM as a loop, and the store of outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run


def test_loops_of_xla_equal_the_unrolled_layer(tmp_path: Path) -> None:
    file = tmp_path / "loops.npz"
    done = run("tensorflow", "tests.equivalence.tensorflow_loops", str(file))
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        found = dict(arrays)
    names = [name.removeprefix("unrolled/") for name in found if name.startswith("unrolled/")]
    assert {name.split("/")[0] for name in names} == {"gnmt", "lstm_ptb"}
    assert sum("/gradient/" in name for name in names) > 40
    apart = {name: in_norm(found[f"unrolled/{name}"], found[f"looped/{name}"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    assert {name: value for name, value in apart.items() if not value <= 1e-10} == {}
    short, long = found["unrolled instructions"]
    assert long > 4 * short
    short, long = found["looped instructions"]
    assert long == short


def test_outputs_of_a_gpu_are_those_of_the_steps_in_order() -> None:
    done = run("tensorflow", "tests.equivalence.tensorflow_results")
    assert done.returncode == 0, done.stderr[-4000:]
