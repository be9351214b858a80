"""TensorFlow's path for GPUs against its path for CPUs, both on the CPU, in TensorFlow's interpreter.

``python -m tests.equivalence.tensorflow_gpu FILE`` writes outputs, gradients, losses and inference of both in
fp64, the number of instructions of XLA's program of an LSTM for two lengths, and whether a step with dropout
has equal constants for two seeds. On the path for GPUs XLA compiles the steps, an LSTM is a loop, integers
are int64 between steps and come from memory that is used again, and outputs are collected together.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.tensorflow import pinned, recurrent
from suite.frameworks.tensorflow.framework import Framework
from tests.equivalence.case import limit_optimisation, load
from tests.equivalence.runner import build

# Convolutions have no path of their own; on a GPU tests.equivalence.gpu_check compares them.
CASES = ("gnmt", "lstm_ptb", "ncf", "word2vec")
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


def constants(seed: int) -> list[bytes]:
    """All constants of the traced step of ``gnmt``, which has dropout, sorted."""
    case = load("gnmt")
    pair = build(case, replace(case.job("tensorflow", "fp32"), seed=seed))
    step = tf.function(pair.update, autograph=False)
    graph = step.get_concrete_function(pair.framework.feed(pair.data, 0)).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    values = (node.attr["value"].tensor for node in nodes if node.op == "Const")
    return sorted(value.SerializeToString(deterministic=True) for value in values)


@contextmanager
def on_a_gpu() -> Iterator[None]:
    """Pairs that are made in this block take the path for GPUs."""
    set_up = Framework.__init__

    def with_cuda(self: Framework, job: Any) -> None:
        set_up(self, job)
        self.cuda = True

    def ordinary(size: int, gpu: int) -> int:
        del gpu
        ordinary_memory.append(ctypes.create_string_buffer(size + pinned._ALIGNMENT))
        return -(-ctypes.addressof(ordinary_memory[-1]) // pinned._ALIGNMENT) * pinned._ALIGNMENT

    ordinary_memory: list[Any] = []

    with (
        mock.patch.object(Framework, "__init__", with_cuda),
        mock.patch.object(recurrent, "_unrolled", recurrent._looped),
        mock.patch.object(pinned, "_page_locked", ordinary),
        mock.patch.object(pinned, "CUDA", pinned.CPU),
        mock.patch.object(pinned, "LARGEST", 1 << 15),
        mock.patch.object(pinned, "_ROOM", 1 << 16),  # so that it is used again
    ):
        yield


def main(file: str) -> None:
    """See the module."""
    limit_optimisation("tensorflow")
    found: dict[str, Any] = {}
    for name in CASES:
        found |= {f"cpu/{key}": array for key, array in compute(name).items()}
    found["unrolled instructions"] = np.array([instructions(length) for length in LENGTHS])
    with on_a_gpu():
        for name in CASES:
            found |= {f"gpu/{key}": array for key, array in compute(name).items()}
        found["looped instructions"] = np.array([instructions(length) for length in LENGTHS])
        found["equal constants"] = np.array(constants(1) == constants(2))
    np.savez(file, **found)


if __name__ == "__main__":
    main(sys.argv[1])
