"""The operations of ``ops.py`` in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Tensor = Any


class Ops:
    """See :class:`suite.workloads.faster_rcnn.ops.Ops`."""

    floor = staticmethod(jnp.floor)
    exp = staticmethod(jnp.exp)
    log = staticmethod(jnp.log)
    absolute = staticmethod(jnp.abs)
    minimum = staticmethod(jnp.minimum)
    maximum = staticmethod(jnp.maximum)
    at_least = staticmethod(jnp.maximum)
    at_most = staticmethod(jnp.minimum)
    sum = staticmethod(jnp.sum)
    max = staticmethod(jnp.max)
    expand_dims = staticmethod(jnp.expand_dims)
    reshape = staticmethod(jnp.reshape)
    softmax = staticmethod(jax.nn.softmax)
    log_softmax = staticmethod(jax.nn.log_softmax)

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def mask(self, condition: Tensor) -> Tensor:  # noqa: D102 - documented by the protocol
        return condition.astype(self._dtype)

    def to_float(self, index: Tensor) -> Tensor:  # noqa: D102
        return index.astype(self._dtype)

    def to_index(self, number: Tensor) -> Tensor:  # noqa: D102
        return number.astype(jnp.int32)

    def arange(self, count: int) -> Tensor:  # noqa: D102
        return jnp.arange(count, dtype=self._dtype)

    def argmax(self, x: Tensor) -> Tensor:  # noqa: D102
        return jnp.argmax(x, axis=-1)  # the first of equal values, by its documentation

    def top_indices(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return jnp.sort(lax.top_k(score, count)[1], axis=1)  # top_k prefers lower indices

    def kth_largest(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return lax.top_k(score, count)[0][:, -1:]

    def gather(self, values: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        return jax.vmap(lambda rows, chosen: rows[chosen])(values, index)

    def take_rows(self, table: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        return table[index]

    def matvec(self, matrices: Tensor, vectors: Tensor) -> Tensor:  # noqa: D102
        return jnp.einsum("bij,bj->bi", matrices, vectors)

    def coordinates(self, boxes: Tensor) -> Sequence[Tensor]:  # noqa: D102
        return [boxes[..., part] for part in range(4)]

    def stack(self, parts: Sequence[Tensor]) -> Tensor:  # noqa: D102
        return jnp.stack(list(parts), axis=-1)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:  # noqa: D102
        return jnp.concatenate(list(parts), axis=axis)

    def slice_axis(self, x: Tensor, axis: int, start: int, end: int) -> Tensor:  # noqa: D102
        return lax.slice_in_dim(x, start, end, axis=axis)
