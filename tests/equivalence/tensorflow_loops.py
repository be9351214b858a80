"""The LSTM for GPUs, loops compiled by XLA, against the unrolled one, in TensorFlow's interpreter on the CPU.

``python -m tests.equivalence.tensorflow_loops FILE`` writes outputs, gradients, loss and inference of both in
fp64, and the number of instructions of XLA's program for two lengths.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.tensorflow import recurrent
from tests.equivalence.case import load
from tests.equivalence.runner import build

CASES = ("gnmt", "lstm_ptb")
LENGTHS = (5, 40)


def compute(name: str) -> dict[str, NDArray[Any]]:
    """The results of the case ``name``, by what they are."""
    case = load(name)
    pair = build(case, case.job("tensorflow", "fp64"))
    found = {f"{name}/gradient/{parameter}": array for parameter, array in pair.gradients(1).items()}
    found[f"{name}/outputs"] = pair.outputs(1)
    for step in range(2):  # the second starts from a carried state
        pair.step(step)
    found[f"{name}/losses"] = np.array(pair.collect())
    inference = build(case, case.job("tensorflow", "fp64", "infer"))
    for step in range(2):
        inference.step(step)
    for step, output in enumerate(inference.collect()):
        found[f"{name}/inferred/{step}"] = output
    return found


def instructions(steps: int) -> int:
    """The number of instructions of XLA's program of a layer with its gradient, for ``steps`` steps."""
    shapes = (steps, 2, 3), (16, 3), (16, 4), (16,)
    arguments = [tf.ones(shape) for shape in shapes]

    @tf.function(autograph=False, jit_compile=True)
    def differentiated(*tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(recurrent.lstm(*tensors)[0])
        return tape.gradient(total, tensors)

    return int(differentiated.experimental_get_compiler_ir(*arguments)(stage="hlo").count(" = "))


def main(file: str) -> None:
    """See the module."""
    found: dict[str, Any] = {}
    for name in CASES:
        found |= {f"unrolled/{key}": array for key, array in compute(name).items()}
    found["unrolled instructions"] = np.array([instructions(length) for length in LENGTHS])
    traced, compiled = recurrent._looped, tf.function

    def by_xla(function: Any = None, **options: Any) -> Any:
        return compiled(function, **{**options, "jit_compile": True})

    with mock.patch.object(recurrent, "_unrolled", traced), mock.patch.object(tf, "function", by_xla):
        for name in CASES:
            found |= {f"looped/{key}": array for key, array in compute(name).items()}
    with mock.patch.object(recurrent, "_unrolled", traced):
        found["looped instructions"] = np.array([instructions(length) for length in LENGTHS])
    np.savez(file, **found)


if __name__ == "__main__":
    main(sys.argv[1])
