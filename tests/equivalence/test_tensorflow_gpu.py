"""TensorFlow's code for GPUs, on the CPU: XLA, the LSTM as a loop, integers, and the store of outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run


def test_path_for_gpus_computes_what_that_for_cpus_computes(tmp_path: Path) -> None:
    file = tmp_path / "both.npz"
    done = run("tensorflow", "tests.equivalence.tensorflow_gpu", str(file))
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        found = dict(arrays)
    names = [name.removeprefix("cpu/") for name in found if name.startswith("cpu/")]
    assert {name.split("/")[0] for name in names} >= {"gnmt", "lstm_ptb", "ncf", "word2vec"}
    apart = {name: in_norm(found[f"cpu/{name}"], found[f"gpu/{name}"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    assert {name: value for name, value in apart.items() if not value <= 1e-10} == {}
    short, long = found["unrolled instructions"]
    assert long > 4 * short
    short, long = found["looped instructions"]
    assert long == short
    assert found["equal constants"]  # else each repeat, which has a seed of its own, would compile again


def test_outputs_of_a_gpu_are_those_of_the_steps_in_order() -> None:
    done = run("tensorflow", "tests.equivalence.tensorflow_results")
    assert done.returncode == 0, done.stderr[-4000:]


def test_strangers_do_not_stop_the_ranks_of_two_nodes_from_meeting() -> None:
    done = run("tensorflow", "tests.equivalence.tensorflow_meeting")
    assert done.returncode == 0, done.stderr[-4000:]
