"""Triton kernels: a GPU's clock (``%globaltimer``, PTX ISA), sums, products, and boxes cut out of images."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

TICKS = 64  # changes of the clock that show its resolution
BLOCK = 2048  # elements of a vector that a program of :func:`add_up` adds up


@triton.jit
def record(times, count, ring: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the clock to ``times[count % ring]``, and add one to ``count``; both int64."""
    number = tl.load(count)
    tl.store(times + number % ring, globaltimer())
    tl.store(count, number + 1)


@triton.jit
def observe(ticks, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the next ``size`` different values of the clock to ``ticks``, int64."""
    last = globaltimer()
    for at in range(size):
        now = globaltimer()
        while now == last:
            now = globaltimer()
        tl.store(ticks + at, now)
        last = now


@triton.jit
def add_up(  # type: ignore[no-untyped-def]
    own, received, stride, rank: tl.constexpr, total, length, ranks: tl.constexpr, block: tl.constexpr
):
    """Write to ``total`` the sum of ``own`` and all rows of ``received`` but that of ``rank``.

    All have ``length`` elements of one type; ``stride`` elements lie between the rows.
    """
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < length
    value = tl.load(own + at, mask=inside)
    for step in tl.static_range(1, ranks):
        row = (rank + step) % ranks
        value += tl.load(received + row * stride + at, mask=inside)
    tl.store(total + at, value, mask=inside)


@triton.jit
def cut_out(  # type: ignore[no-untyped-def]
    images, facts, target, count, rows, columns, block: tl.constexpr
):
    """Write to ``target`` [count, rows, 3, columns] a box of each image in its upper left, and zeros.

    ``images``: all images [3, height, width] behind each other. ``facts``, int64 [7, count]: the start of an
    image, the elements of a colour and of a row; the box's left, upper edge, width and height. A program
    writes one row of one colour.
    """
    line = tl.program_id(0).to(tl.int64)
    colour, row, image = line % 3, line // 3 % rows, line // 3 // rows
    fact = facts + image
    start, plane, width = tl.load(fact), tl.load(fact + count), tl.load(fact + 2 * count)
    left, upper = tl.load(fact + 3 * count), tl.load(fact + 4 * count)
    wide, high = tl.load(fact + 5 * count), tl.load(fact + 6 * count)
    at = tl.arange(0, block)
    source = images + start + colour * plane + (upper + row) * width + left
    value = tl.load(source + at, mask=(at < wide) & (row < high), other=0)
    tl.store(target + line * columns + at, value.to(target.dtype.element_ty), mask=at < columns)


@triton.jit
def add_product(total, left, right):  # type: ignore[no-untyped-def]
    """``total + left @ right``, of half precision or of float64."""
    if total.dtype == tl.float64:
        result = total + tl.sum(left[:, :, None] * right[None, :, :], 1)
    else:
        result = tl.dot(left, right, total)
    return result


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    """The tanh of ``x``, of float32 or float64."""
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def sum_of_rows(  # type: ignore[no-untyped-def]
    found, column, columns, rows, wide: tl.constexpr, high: tl.constexpr, few: tl.constexpr
):
    """The sum of ``found`` [rows, columns], by the vector ``column`` of ``few``; ``high`` rows at a time."""
    sums = tl.zeros((high, few), wide)
    start = 0
    while start < rows:
        row = start + tl.arange(0, high)[:, None]
        here = (row < rows) & (column < columns)[None, :]
        sums += tl.load(found + row * columns + column[None, :], mask=here, other=0)
        start += high
    return tl.sum(sums, 0)
