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
    total = staticmethod(tf.reduce_sum)
    largest = staticmethod(tf.reduce_max)
    rows = staticmethod(tf.gather)
    expand = staticmethod(tf.expand_dims)
    shaped = staticmethod(tf.reshape)
    join = staticmethod(tf.concat)
    softmax = staticmethod(tf.nn.softmax)
    log_softmax = staticmethod(tf.nn.log_softmax)

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def mask(self, condition: Tensor) -> Tensor:  # noqa: D102 - the protocol has the words
        return tf.cast(condition, self._dtype)

    def number(self, index: Tensor) -> Tensor:  # noqa: D102
        return tf.cast(index, self._dtype)

    def integer(self, number: Tensor) -> Tensor:  # noqa: D102
        return tf.cast(number, tf.int32)

    def span(self, count: int) -> Tensor:  # noqa: D102
        return tf.cast(tf.range(count), self._dtype)

    def first(self, x: Tensor) -> Tensor:  # noqa: D102
        # argmax promises nothing of ties; top_k does.
        return tf.math.top_k(x, k=1).indices[..., 0]

    def best(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return tf.sort(tf.math.top_k(score, k=count).indices, axis=1)  # of equal ones the first come first

    def rank(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return tf.math.top_k(score, k=count).values[:, -1:]

    def take(self, values: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        return tf.gather(values, index, batch_dims=1)

    def product(self, matrices: Tensor, vectors: Tensor) -> Tensor:  # noqa: D102
        return tf.linalg.matvec(matrices, vectors)

    def columns(self, boxes: Tensor) -> Sequence[Tensor]:  # noqa: D102
        return tf.unstack(boxes, axis=-1)

    def stack(self, parts: Sequence[Tensor]) -> Tensor:  # noqa: D102
        return tf.stack(list(parts), axis=-1)

    def cut(self, x: Tensor, axis: int, start: int, end: int) -> Tensor:  # noqa: D102
        return x[(slice(None),) * axis + (slice(start, end),)]
