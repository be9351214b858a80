"""The operations of ``ops.py`` in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Tensor = Any


class Ops:
    """See :class:`suite.workloads.faster_rcnn.ops.Ops`."""

    floor = staticmethod(tf.floor)
    exp = staticmethod(tf.exp)
    log = staticmethod(tf.math.log)
    absolute = staticmethod(tf.abs)
    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    at_least = staticmethod(tf.maximum)
    at_most = staticmethod(tf.minimum)
    sum = staticmethod(tf.reduce_sum)
    max = staticmethod(tf.reduce_max)
    take_rows = staticmethod(tf.gather)
    expand_dims = staticmethod(tf.expand_dims)
    reshape = staticmethod(tf.reshape)
    concat = staticmethod(tf.concat)
    softmax = staticmethod(tf.nn.softmax)
    log_softmax = staticmethod(tf.nn.log_softmax)

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def mask(self, condition: Tensor) -> Tensor:  # noqa: D102 - documented by the protocol
        return tf.cast(condition, self._dtype)

    def to_float(self, index: Tensor) -> Tensor:  # noqa: D102
        return tf.cast(index, self._dtype)

    def to_index(self, number: Tensor) -> Tensor:  # noqa: D102
        return tf.cast(number, tf.int32)

    def arange(self, count: int) -> Tensor:  # noqa: D102
        return tf.cast(tf.range(count), self._dtype)

    def argmax(self, x: Tensor) -> Tensor:  # noqa: D102
        # argmax does not define ties; top_k does.
        return tf.math.top_k(x, k=1).indices[..., 0]

    def top_indices(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return tf.sort(tf.math.top_k(score, k=count).indices, axis=1)  # top_k prefers lower indices

    def kth_largest(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return tf.math.top_k(score, k=count).values[:, -1:]

    def gather(self, values: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        return tf.gather(values, index, batch_dims=1)

    def matvec(self, matrices: Tensor, vectors: Tensor) -> Tensor:  # noqa: D102
        return tf.linalg.matvec(matrices, vectors)

    def coordinates(self, boxes: Tensor) -> Sequence[Tensor]:  # noqa: D102
        return tf.unstack(boxes, axis=-1)

    def stack(self, parts: Sequence[Tensor]) -> Tensor:  # noqa: D102
        return tf.stack(list(parts), axis=-1)

    def slice_axis(self, x: Tensor, axis: int, start: int, end: int) -> Tensor:  # noqa: D102
        return x[(slice(None),) * axis + (slice(start, end),)]
