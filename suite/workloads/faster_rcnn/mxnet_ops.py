"""The operations of ``ops.py`` on MXNet's arrays, executed one by one: its symbols do not broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import mxnet as mx
from mxnet import nd

Tensor = Any


class Ops:
    """See :class:`suite.workloads.faster_rcnn.ops.Ops`."""

    floor = staticmethod(nd.floor)
    exp = staticmethod(nd.exp)
    log = staticmethod(nd.log)
    absolute = staticmethod(nd.abs)
    minimum = staticmethod(nd.minimum)
    maximum = staticmethod(nd.maximum)
    at_least = staticmethod(nd.maximum)
    at_most = staticmethod(nd.minimum)
    sum = staticmethod(nd.sum)
    max = staticmethod(nd.max)
    take_rows = staticmethod(nd.take)
    expand_dims = staticmethod(nd.expand_dims)
    reshape = staticmethod(nd.reshape)
    slice_axis = staticmethod(nd.slice_axis)
    softmax = staticmethod(nd.softmax)
    log_softmax = staticmethod(nd.log_softmax)

    def __init__(self, dtype: str, context: mx.Context) -> None:
        self._dtype = dtype

        @cache
        def arange(count: int, dtype: str) -> Tensor:
            return nd.arange(count, ctx=context, dtype=dtype)

        self._arange = arange

    def mask(self, condition: Tensor) -> Tensor:  # noqa: D102 - documented by the protocol
        return condition  # comparisons return numbers of their operands' type

    def to_float(self, index: Tensor) -> Tensor:  # noqa: D102
        return index.astype(self._dtype)

    def to_index(self, number: Tensor) -> Tensor:  # noqa: D102
        return number.astype("int32")

    def arange(self, count: int) -> Tensor:  # noqa: D102
        return self._arange(count, self._dtype)

    def argmax(self, x: Tensor) -> Tensor:  # noqa: D102
        return nd.argmax(x, axis=-1).astype("int32")  # the first of equal values, by its documentation

    def top_indices(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        # topk does not define ties: a key of score and position has none, and float64 holds it exactly.
        size = score.shape[1]
        key = score.astype("float64") * size - nd.expand_dims(self._arange(size, "float64"), 0)
        return nd.sort(nd.topk(key, k=count, axis=1, dtype="int32"), axis=1)

    def kth_largest(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        values = nd.topk(score, k=count, axis=1, ret_typ="value")
        return nd.slice_axis(values, axis=1, begin=count - 1, end=count)

    def gather(self, values: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        batch, count = values.shape[:2]
        start = nd.expand_dims(self._arange(batch, "int32") * count, 1)
        return nd.take(nd.reshape(values, (batch * count, *values.shape[2:])), index + start)

    def matvec(self, matrices: Tensor, vectors: Tensor) -> Tensor:  # noqa: D102
        return nd.reshape(nd.batch_dot(matrices, nd.expand_dims(vectors, 2)), vectors.shape)

    def coordinates(self, boxes: Tensor) -> Sequence[Tensor]:  # noqa: D102
        return list(nd.split(boxes, num_outputs=4, axis=boxes.ndim - 1, squeeze_axis=True))

    def stack(self, parts: Sequence[Tensor]) -> Tensor:  # noqa: D102
        return nd.stack(*parts, axis=-1)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:  # noqa: D102
        return nd.concat(*parts, dim=axis)
