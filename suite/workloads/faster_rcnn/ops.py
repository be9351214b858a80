"""What the box algorithm asks of a framework: a few operations, of the same meaning in each.

``boxes.py``, ``regions.py`` and ``losses.py`` are written in these and in ``+ - * /`` with broadcasting, so
that the same lines run in every framework. Masks are numbers, 0 or 1, and so are integers that are compared:
all below 2**24, so that float32 holds them exactly. ``T`` is the framework's tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

T: TypeAlias = Any


class Ops(Protocol):
    """Implemented by ``<framework>_ops.py``; a batch is always the first axis."""

    def mask(self, condition: T) -> T:
        """1 where a comparison holds, else 0, in the type of the parameters."""

    def number(self, index: T) -> T:
        """Integers as numbers in the type of the parameters."""

    def integer(self, number: T) -> T:
        """Whole numbers as integers for :meth:`rows` and :meth:`take`."""

    def span(self, count: int) -> T:
        """The numbers 0 to ``count - 1``."""

    def floor(self, x: T) -> T:
        """The largest whole number not above."""

    def exp(self, x: T) -> T:
        """The exponential function."""

    def log(self, x: T) -> T:
        """The natural logarithm."""

    def absolute(self, x: T) -> T:
        """The absolute value."""

    def minimum(self, a: T, b: T) -> T:
        """The smaller, element by element, of tensors that broadcast."""

    def maximum(self, a: T, b: T) -> T:
        """The larger, as :meth:`minimum`."""

    def at_least(self, x: T, limit: float) -> T:
        """``max(x, limit)``."""

    def at_most(self, x: T, limit: float) -> T:
        """``min(x, limit)``."""

    def total(self, x: T, axis: int) -> T:
        """The sum along an axis."""

    def largest(self, x: T, axis: int) -> T:
        """The largest along an axis."""

    def first(self, x: T) -> T:
        """Integer index of the largest along the last axis, the lowest of equal ones."""

    def best(self, score: T, count: int) -> T:
        """Integer [batch, count], ascending: places of the largest of whole numbers ``score`` [batch, n].

        Of equal ones the lower place wins.
        """

    def rank(self, score: T, count: int) -> T:
        """[batch, 1]: the ``count``-th largest of ``score`` [batch, n]."""

    def take(self, values: T, index: T) -> T:
        """Rows [batch, k, ...] of ``values`` [batch, n, ...], each image by its own ``index`` [batch, k]."""

    def rows(self, table: T, index: T) -> T:
        """Rows of ``table`` [n, ...] in the shape of ``index``."""

    def product(self, matrices: T, vectors: T) -> T:
        """[batch, n] of [batch, n, m] times [batch, m]."""

    def columns(self, boxes: T) -> Sequence[T]:
        """The four numbers of each box, [...] of [..., 4]."""

    def stack(self, parts: Sequence[T]) -> T:
        """Parts of equal shape side by side in a new last axis."""

    def join(self, parts: Sequence[T], axis: int) -> T:
        """Parts one after the other along an axis."""

    def expand(self, x: T, axis: int) -> T:
        """``x`` with an axis of one."""

    def cut(self, x: T, axis: int, start: int, end: int) -> T:
        """``x[start:end]`` along ``axis``."""

    def shaped(self, x: T, shape: tuple[int, ...]) -> T:
        """The same numbers in another shape."""

    def softmax(self, x: T) -> T:
        """Softmax along the last axis."""

    def log_softmax(self, x: T) -> T:
        """Its logarithm."""
