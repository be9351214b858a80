"""The tensor operations of the box algorithm, with one meaning in every framework.

``boxes.py``, ``regions.py`` and ``losses.py`` use only these and ``+ - * /`` with broadcasting: the same
lines run in every framework. Masks are floating-point numbers, 0 or 1. Integers that are compared are
floating-point numbers below 2**24, which float32 holds exactly. ``T`` is the framework's tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

T: TypeAlias = Any


class Ops(Protocol):
    """Implemented by ``<framework>_ops.py``; a batch is always the first axis."""

    def mask(self, condition: T) -> T:
        """1 where a comparison holds, else 0, in the type of the parameters."""

    def to_float(self, index: T) -> T:
        """Integers converted to the type of the parameters."""

    def to_index(self, number: T) -> T:
        """Whole numbers converted to integers, for :meth:`take_rows` and :meth:`gather`."""

    def arange(self, count: int) -> T:
        """The numbers 0 to ``count - 1`` in the type of the parameters."""

    def floor(self, x: T) -> T:
        """The largest whole number not above ``x``."""

    def exp(self, x: T) -> T:
        """The exponential function."""

    def log(self, x: T) -> T:
        """The natural logarithm."""

    def absolute(self, x: T) -> T:
        """The absolute value."""

    def minimum(self, a: T, b: T) -> T:
        """The element-wise minimum, with broadcasting."""

    def maximum(self, a: T, b: T) -> T:
        """The element-wise maximum, with broadcasting."""

    def at_least(self, x: T, limit: float) -> T:
        """``max(x, limit)``."""

    def at_most(self, x: T, limit: float) -> T:
        """``min(x, limit)``."""

    def sum(self, x: T, axis: int) -> T:
        """The sum along an axis."""

    def max(self, x: T, axis: int) -> T:
        """The maximum along an axis."""

    def argmax(self, x: T) -> T:
        """Integer index of the maximum along the last axis, the lowest of equal ones."""

    def top_indices(self, score: T, count: int) -> T:
        """Integers [batch, count], ascending: indices of the largest whole numbers in ``score`` [batch, n].

        Of equal scores the lower index is taken.
        """

    def kth_largest(self, score: T, count: int) -> T:
        """[batch, 1]: the ``count``-th largest of ``score`` [batch, n]."""

    def gather(self, values: T, index: T) -> T:
        """Rows [batch, k, ...] of ``values`` [batch, n, ...], in each image those of ``index`` [batch, k]."""

    def take_rows(self, table: T, index: T) -> T:
        """Rows of ``table`` [n, ...] at ``index`` [...]: [..., ...]."""

    def matvec(self, matrices: T, vectors: T) -> T:
        """The products [batch, n] of ``matrices`` [batch, n, m] and ``vectors`` [batch, m]."""

    def coordinates(self, boxes: T) -> Sequence[T]:
        """x1, y1, x2 and y2 of ``boxes`` [..., 4], each [...]."""

    def stack(self, parts: Sequence[T]) -> T:
        """Stack parts of equal shape along a new last axis."""

    def concat(self, parts: Sequence[T], axis: int) -> T:
        """Concatenate parts along an axis."""

    def expand_dims(self, x: T, axis: int) -> T:
        """``x`` with a new axis of length one."""

    def slice_axis(self, x: T, axis: int, start: int, end: int) -> T:
        """``x[start:end]`` along ``axis``."""

    def reshape(self, x: T, shape: tuple[int, ...]) -> T:
        """``x`` in another shape."""

    def softmax(self, x: T) -> T:
        """Softmax along the last axis."""

    def log_softmax(self, x: T) -> T:
        """Logarithm of the softmax along the last axis."""
