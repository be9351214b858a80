"""Triton kernels of a convolution with stride 1, without padding, and of the gradient of its weight.

Both are products with the patches [pixels, columns] of the image. The pixels are those of the output; a
column is a place in the convolution's kernel and a channel there. Adjacent columns of a row of that kernel
are adjacent in the image, so that a program loads patches as they lie.

The convolution multiplies patches by the weight, which a program loads once.

The gradient multiplies the slopes [pixels, outputs], transposed, by the patches. A program adds up the
products of neighbouring pixels. A second launch adds up what the programs found, in a fixed order, so that
results repeat bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from suite.frameworks.pytorch.kernels import add_product, sum_of_rows

OUTPUTS = 64  # of a program: what one instruction of Hopper's tensor cores multiplies
COLUMNS = 256  # of a program, at most: the same
PIXELS = 32  # that a program loads at a time, at most: of one row of the output
WIDE = 16  # outputs, columns and pixels of a program in float64
# Elements of a patch that a thread loads at a time. Neighbouring patches share most of their pixels: loads of
# eight bytes find them in the first-level cache, which those of sixteen into shared memory go past.
VECTOR = 4
PROGRAMS = 264  # at most: two for each multiprocessor of an H100 or H200
WARPS, STAGES = 4, 4
# Of the convolution: pixels that a program computes at a time, programs at most, and as above.
FORWARD_PIXELS, FORWARD_PROGRAMS = 64, 264
FORWARD_WARPS, FORWARD_STAGES = 4, 2
FEW, FOUND, LAST_WARPS = 64, 64, 8  # elements of a program of the second launch; programs it reads at a time


@triton.jit(do_not_specialize=["size"])
def _convolution(  # type: ignore[no-untyped-def]
    image, weight, bias, result, size, turns: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    outputs: tl.constexpr, channels: tl.constexpr, down: tl.constexpr, across: tl.constexpr,
    biased: tl.constexpr, wide: tl.constexpr, pixels: tl.constexpr, some: tl.constexpr,
    deep: tl.constexpr, vector: tl.constexpr
):  # fmt: skip
    """``result`` [size = images * height * width, outputs], of ``turns`` times ``pixels`` a program.

    ``image`` is [images, height + down - 1, width + across - 1, channels], ``weight`` [outputs, down, across,
    channels], ``bias`` [outputs].
    """
    columns: tl.constexpr = down * across * channels
    line: tl.constexpr = across * channels
    image_line: tl.constexpr = (width + across - 1) * channels
    output = tl.program_id(1) * some + tl.arange(0, some)
    column = tl.arange(0, deep)
    known = (output < outputs)[None, :]
    own = weight + output[None, :] * columns
    factor = tl.load(own + column[:, None], mask=known & (column < columns)[:, None], other=0)
    addend = tl.zeros((some,), wide)
    if biased:
        addend += tl.load(bias + output, mask=output < outputs, other=0).to(wide)
    place = tl.arange(0, pixels)
    for turn in range(turns):
        # In 64 bits: more elements than int32 counts.
        pixel = (tl.program_id(0) * turns + turn).to(tl.int64) * pixels + place
        present = (pixel < size)[:, None]
        row = pixel // width
        above = row + row // height * (down - 1)  # rows of all images above
        seen = (above * image_line + pixel % width * channels)[:, None]
        total = tl.zeros((pixels, some), wide)
        for first in tl.static_range(0, columns, deep):
            column = first + tl.arange(0, deep)
            patch_at = seen + (column // line * image_line + column % line)[None, :]
            patch_at = tl.max_contiguous(patch_at, (1, vector))
            patch = tl.load(image + patch_at, mask=present & (column < columns)[None, :], other=0)
            if columns > deep:
                factor = tl.load(own + column[:, None], mask=known & (column < columns)[:, None], other=0)
            total = add_product(total, patch, factor)
        target = result + pixel[:, None] * outputs + output[None, :]
        tl.store(target, (total + addend[None, :]).to(result.dtype.element_ty), mask=present & known)


@triton.jit(do_not_specialize=["rows"])
def _products(  # type: ignore[no-untyped-def]
    slopes, image, found, rows, turns: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    outputs: tl.constexpr, channels: tl.constexpr, down: tl.constexpr, across: tl.constexpr,
    wide: tl.constexpr, pixels: tl.constexpr, some: tl.constexpr, deep: tl.constexpr,
    vector: tl.constexpr
):  # fmt: skip
    """``found`` [programs, outputs, columns]: of ``turns`` pieces of rows, the products added up.

    ``slopes`` are [rows = images * height, width, outputs], ``image`` [images, height + down - 1,
    width + across - 1, channels]; columns are [down, across, channels], of a kernel of down x across pixels.
    """
    output = tl.program_id(1) * some + tl.arange(0, some)
    column = tl.program_id(2) * deep + tl.arange(0, deep)
    known = output < outputs
    taken = column < down * across * channels
    line: tl.constexpr = across * channels  # adjacent columns of a patch: its pixels of a row are neighbours
    image_line: tl.constexpr = (width + across - 1) * channels
    pieces: tl.constexpr = (width + pixels - 1) // pixels  # of a row
    place = tl.arange(0, pixels)
    slope_at = place[:, None] * outputs + output[None, :]
    patch_at = place[:, None] * channels + (column // line * image_line + column % line)[None, :]
    patch_at = tl.max_contiguous(patch_at, (1, vector))
    total = tl.zeros((some, deep), wide)
    for turn in range(turns):
        piece = tl.program_id(0) * turns + turn
        row, first = piece // pieces, piece % pieces * pixels
        present = ((place < width - first) & (row < rows))[:, None]
        # In 64 bits: more elements than int32 counts.
        own = slopes + (row.to(tl.int64) * width + first) * outputs
        above = row + row // height * (down - 1)  # rows of all images above
        seen = image + above.to(tl.int64) * image_line + first * channels
        slope = tl.load(own + slope_at, mask=present & known[None, :], other=0)
        patch = tl.load(seen + patch_at, mask=present & taken[None, :], other=0)
        total = add_product(total, tl.trans(slope), patch)
    target = found + (tl.program_id(0) * outputs + output[:, None]) * (down * across * channels)
    tl.store(target + column[None, :], total, mask=known[:, None] & taken[None, :])


@triton.jit(do_not_specialize=["programs"])
def _gradient(  # type: ignore[no-untyped-def]
    found, gradient, programs, size, wide: tl.constexpr, high: tl.constexpr, few: tl.constexpr
):
    """``gradient`` [size]: the sum of ``found`` [programs, size] over the programs."""
    at = tl.program_id(0) * few + tl.arange(0, few)
    total = sum_of_rows(found, at, size, programs, wide, high, few)
    tl.store(gradient + at, total.to(gradient.dtype.element_ty), mask=at < size)


def convolves(weight: Tensor) -> bool:
    """Whether :func:`convolve` has a kernel for ``weight``: a program keeps all columns of some outputs."""
    return weight.element_size() == 8 or weight[0].numel() <= COLUMNS


def convolve(image: Tensor, weight: Tensor, bias: Tensor | None, result: Tensor) -> None:
    """Write the convolution of ``image`` with ``weight``, plus ``bias`` [outputs], to ``result``.

    ``image`` is [N, height + down - 1, width + across - 1, channels], ``weight`` [outputs, down, across,
    channels], ``result`` [N, height, width, outputs]. All are contiguous and of one type: half precision or
    float64.
    """
    count, height, width, outputs = result.shape
    _, down, across, channels = weight.shape
    half = result.element_size() == 2
    sizes: dict[str, Any] = {"pixels": WIDE, "some": WIDE, "deep": WIDE}
    if half:  # products have 16 rows and columns at least
        some, deep = (max(16, triton.next_power_of_2(size)) for size in (outputs, down * across * channels))
        sizes = {"pixels": FORWARD_PIXELS, "some": min(OUTPUTS, some), "deep": min(COLUMNS, deep)}
    pieces = -(-count * height * width // sizes["pixels"])
    parts = -(-outputs // sizes["some"])
    turns = -(-pieces // max(1, FORWARD_PROGRAMS // parts))
    _convolution[(-(-pieces // turns), parts)](
        image, weight, bias, result, count * height * width, turns, height, width, outputs, channels, down,
        across, bias is not None, wide=tl.float32 if half else tl.float64, vector=VECTOR,
        num_warps=FORWARD_WARPS, num_stages=FORWARD_STAGES, **sizes
    )  # fmt: skip


def weight_gradient(slopes: Tensor, image: Tensor, gradient: Tensor) -> None:
    """Write the gradient of the weight of a convolution to ``gradient`` [outputs, down, across, channels].

    ``slopes`` [N, height, width, outputs] are those of its output, ``image`` is its input, [N, height +
    down - 1, width + across - 1, channels]. All are contiguous and of one type: half precision or float64.
    """
    count, height, width, outputs = slopes.shape
    _, down, across, channels = gradient.shape
    half = slopes.element_size() == 2
    columns = down * across * channels
    sizes: dict[str, Any] = {"pixels": WIDE, "some": WIDE, "deep": WIDE}
    if half:  # products have 16 rows and columns at least
        pixels, deep = (max(16, triton.next_power_of_2(size)) for size in (width, columns))
        sizes = {"pixels": min(PIXELS, pixels), "some": OUTPUTS, "deep": min(COLUMNS, deep)}
    pieces = count * height * -(-width // sizes["pixels"])
    parts = -(-outputs // sizes["some"]), -(-columns // sizes["deep"])
    turns = -(-pieces // max(1, PROGRAMS // (parts[0] * parts[1])))
    programs = -(-pieces // turns)
    wide, dtype = (tl.float32, torch.float32) if half else (tl.float64, torch.float64)
    size = gradient.numel()
    found = slopes.new_empty((programs, size), dtype=dtype)
    _products[(programs, *parts)](
        slopes, image, found, count * height, turns, height, width, outputs, channels, down, across,
        wide=wide, vector=VECTOR, num_warps=WARPS, num_stages=STAGES, **sizes
    )  # fmt: skip
    _gradient[(-(-size // FEW),)](
        found, gradient, programs, size, wide=wide, high=FOUND, few=FEW, num_warps=LAST_WARPS
    )
