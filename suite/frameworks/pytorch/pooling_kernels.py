"""Triton kernels of max pooling and of its gradient, for images in the channels-last layout.

A program computes a block of columns x channels. Programs of one image differ in the row first, so that the
rows that neighbours share are still in the cache.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

CHANNELS = 64  # of a program, at most: two bytes each fill a cache line
ELEMENTS = 1024  # columns x channels of a program, at most
WARPS = 4


@triton.jit(do_not_specialize=["height", "width", "rows", "columns"])
def _forward(  # type: ignore[no-untyped-def]
    x, maxima, index, height, width, rows, columns, channels,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, wide: tl.constexpr,
    across: tl.constexpr, deep: tl.constexpr
):  # fmt: skip
    """One row of windows of one image: the largest of each, and where it is in the window, row by row."""
    line = tl.program_id(0)
    image, row = (line // rows).to(tl.int64), line % rows  # more elements than int32 counts
    column = tl.program_id(1) * across + tl.arange(0, across)[:, None]
    channel = tl.program_id(2) * deep + tl.arange(0, deep)[None, :]
    inside = (column < columns) & (channel < channels)
    top, left = row * stride - padding, column * stride - padding
    # As in F.max_pool2d: the first one in the image where all are minus infinity, the last NaN where one is.
    largest = tl.full((across, deep), float("-inf"), wide)
    chosen = tl.maximum(-top, 0) * kernel + tl.maximum(-left, 0) + tl.zeros((across, deep), tl.int32)
    for down in tl.static_range(kernel):
        for over in tl.static_range(kernel):
            y, z = top + down, left + over
            present = inside & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            source = x + (image * height + y) * width * channels + z * channels + channel
            seen = tl.load(source, mask=present, other=float("-inf")).to(wide)
            larger = (seen > largest) | (seen != seen)  # noqa: PLR0124
            largest = tl.where(larger, seen, largest)
            chosen = tl.where(larger, down * kernel + over, chosen)
    target = (image * rows + row) * columns * channels + column * channels + channel
    tl.store(maxima + target, largest.to(maxima.dtype.element_ty), mask=inside)
    tl.store(index + target, chosen.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "lines"])
def _backward(  # type: ignore[no-untyped-def]
    slopes, index, gradient, height, width, rows, columns, lines, channels,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, wide: tl.constexpr,
    across: tl.constexpr, deep: tl.constexpr
):  # fmt: skip
    """A row of squares of stride x stride pixels, of ``lines`` rows; the first square begins in the padding.

    Pixel (i, j) of square (r, c) is pixel (i + stride * a, j + stride * b) of window (r - a, c - b): all
    windows that contain it are read, and no others.
    """
    line = tl.program_id(0)
    image, square = (line // lines).to(tl.int64), line % lines
    across_at = tl.program_id(1) * across + tl.arange(0, across)[:, None]
    channel = tl.program_id(2) * deep + tl.arange(0, deep)[None, :]
    for i in tl.static_range(stride):
        for j in tl.static_range(stride):
            total = tl.zeros((across, deep), wide)
            for down in tl.static_range(i, kernel, stride):
                for over in tl.static_range(j, kernel, stride):
                    row, column = square - (down - i) // stride, across_at - (over - j) // stride
                    there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
                    there &= channel < channels
                    source = (image * rows + row) * columns * channels + column * channels + channel
                    here = tl.load(index + source, mask=there, other=255) == down * kernel + over
                    slope = tl.load(slopes + source, mask=there, other=0).to(wide)
                    total += tl.where(here, slope, 0)
            y, z = square * stride + i - padding, across_at * stride + j - padding
            inside = (y >= 0) & (y < height) & (z >= 0) & (z < width) & (channel < channels)
            target = (image * height + y) * width * channels + z * channels + channel
            tl.store(gradient + target, total.to(gradient.dtype.element_ty), mask=inside)


def _settings(x: Tensor, columns: int) -> tuple[int, int, dict[str, Any]]:
    """The numbers of programs for ``columns`` and for the channels of ``x``, and the sizes of a block."""
    deep = min(CHANNELS, triton.next_power_of_2(x.shape[1]))
    across = min(ELEMENTS // deep, triton.next_power_of_2(columns))
    wide = tl.float64 if x.element_size() == 8 else tl.float32
    sizes = {"wide": wide, "across": across, "deep": deep, "num_warps": WARPS}
    return -(-columns // across), -(-x.shape[1] // deep), sizes


def forward(x: Tensor, maxima: Tensor, index: Tensor, kernel: int, stride: int, padding: int) -> None:
    """Write the largest value of each window of ``x`` [N, C, H, W] to ``maxima``, its number to ``index``.

    All are in the channels-last layout; ``index`` is uint8, and has the shape of ``maxima``.
    """
    count, channels, height, width = x.shape
    rows, columns = maxima.shape[2:]
    blocks, groups, settings = _settings(x, columns)
    _forward[count * rows, blocks, groups](
        x, maxima, index, height, width, rows, columns, channels, kernel, stride, padding, **settings
    )


def backward(slopes: Tensor, index: Tensor, gradient: Tensor, kernel: int, stride: int, padding: int) -> None:
    """Write to ``gradient`` [N, C, H, W] for each pixel the sum of ``slopes`` of the windows that chose it.

    All are in the channels-last layout; ``index``, from :func:`forward`, has the shape of ``slopes``.
    """
    count, channels, height, width = gradient.shape
    rows, columns = slopes.shape[2:]
    lines, squares = (-(-(side + padding) // stride) for side in (height, width))
    blocks, groups, settings = _settings(gradient, squares)
    _backward[count * lines, blocks, groups](
        slopes, index, gradient, height, width, rows, columns, lines, channels, kernel, stride, padding,
        **settings
    )  # fmt: skip
