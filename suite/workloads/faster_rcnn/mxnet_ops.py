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
    total = staticmethod(nd.sum)
    largest = staticmethod(nd.max)
    rows = staticmethod(nd.take)
    expand = staticmethod(nd.expand_dims)
    shaped = staticmethod(nd.reshape)
    cut = staticmethod(nd.slice_axis)
    softmax = staticmethod(nd.softmax)
    log_softmax = staticmethod(nd.log_softmax)

    def __init__(self, dtype: str, context: mx.Context) -> None:
        self._dtype = dtype

        @cache
        def span(count: int, dtype: str) -> Tensor:
            return nd.arange(count, ctx=context, dtype=dtype)

        self._span = span

    def mask(self, condition: Tensor) -> Tensor:  # noqa: D102 - the protocol has the words
        return condition  # comparisons give numbers of their operands' type

    def number(self, index: Tensor) -> Tensor:  # noqa: D102
        return index.astype(self._dtype)

    def integer(self, number: Tensor) -> Tensor:  # noqa: D102
        return number.astype("int32")

    def span(self, count: int) -> Tensor:  # noqa: D102
        return self._span(count, self._dtype)

    def first(self, x: Tensor) -> Tensor:  # noqa: D102
        return nd.argmax(x, axis=-1).astype("int32")  # of equal ones the first, by its documentation

    def best(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        # topk says nothing of ties: a key of score and place has none, and float64 holds it exactly.
        places = score.shape[1]
        key = score.astype("float64") * places - nd.expand_dims(self._span(places, "float64"), 0)
        return nd.sort(nd.topk(key, k=count, axis=1, dtype="int32"), axis=1)

    def rank(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        values = nd.topk(score, k=count, axis=1, ret_typ="value")
        return nd.slice_axis(values, axis=1, begin=count - 1, end=count)

    def take(self, values: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        batch, count = values.shape[:2]
        start = nd.expand_dims(self._span(batch, "int32") * count, 1)
        return nd.take(nd.reshape(values, (batch * count, *values.shape[2:])), index + start)

    def product(self, matrices: Tensor, vectors: Tensor) -> Tensor:  # noqa: D102
        return nd.reshape(nd.batch_dot(matrices, nd.expand_dims(vectors, 2)), vectors.shape)

    def columns(self, boxes: Tensor) -> Sequence[Tensor]:  # noqa: D102
        return list(nd.split(boxes, num_outputs=4, axis=boxes.ndim - 1, squeeze_axis=True))

    def stack(self, parts: Sequence[Tensor]) -> Tensor:  # noqa: D102
        return nd.stack(*parts, axis=-1)

    def join(self, parts: Sequence[Tensor], axis: int) -> Tensor:  # noqa: D102
        return nd.concat(*parts, dim=axis)
