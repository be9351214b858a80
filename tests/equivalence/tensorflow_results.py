"""Outputs that TensorFlow's store for GPUs returns, in TensorFlow's interpreter on the CPU.

``python -m tests.equivalence.tensorflow_results`` fails unless they are those of the steps, in order.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from suite.frameworks.tensorflow.results import LARGE, OverlappedResults


def main() -> None:
    """See the module."""
    results = OverlappedResults(SimpleNamespace(array=lambda tensor: np.array(tensor.numpy())))
    shapes = ((), (2, 3), (), (LARGE // 4,), (2, 3))
    kept = [tf.random.uniform(shapes[step % 5]) for step in range(58)]
    kept[7] = tf.constant(7)  # another type
    for tensor in kept:
        results.keep(tensor)
    found = results.collect()
    if len(found) != len(kept) or results.collect() != []:
        raise SystemExit(f"expected {len(kept)} outputs and then none, found {len(found)}")
    for step, (array, tensor) in enumerate(zip(found, kept, strict=True)):
        expected = tensor.numpy()
        if (array.dtype, array.shape) != (expected.dtype, expected.shape) or not np.array_equal(
            array, expected
        ):
            raise SystemExit(f"step {step}: expected {expected}, found {array}")


if __name__ == "__main__":
    main()
