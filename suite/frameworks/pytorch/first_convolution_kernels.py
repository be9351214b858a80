"""Triton kernels of a convolution with stride 1, without padding, and of the gradient of its weight.

Both are products with the patches [pixels, columns] of the image. The pixels are those of the output; a
column is a position in the convolution's kernel and a channel there. Adjacent columns of a row of that kernel
are adjacent in the image, so that a program loads patches as they lie.

The convolution multiplies patches by the weight. A program computes some pixels of neighbouring rows, because
the rows of the image that they need are mostly the same.

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
FORWARD_PIXELS, FORWARD_ROWS = 128, 2  # of the output, of a program of the convolution
FORWARD_COLUMNS = 64  # of a row of its kernel, that a program loads at a time, at most
FORWARD_VECTOR, FORWARD_WARPS, FORWARD_STAGES = 8, 8, 3
FEW, FOUND, LAST_WARPS = 64, 64, 8  # elements of a program of the second launch; programs it reads at a time


@triton.jit
def _convolution(  # type: ignore[no-untyped-def]
    image, weight, bias, result, height: tl.constexpr, width: tl.constexpr, outputs: tl.constexpr,
    channels: tl.constexpr, down: tl.constexpr, across: tl.constexpr, biased: tl.constexpr,
    wide: tl.constexpr, pixels: tl.constexpr, high: tl.constexpr, some: tl.constexpr, deep: tl.constexpr,
    vector: tl.constexpr
):  # fmt: skip
    """``result`` [images, height, width, outputs]: ``pixels`` of ``high`` rows, and ``some`` outputs.

    ``image`` is [images, height + down - 1, width + across - 1, channels], ``weight`` [outputs, down, across,
    channels], ``bias`` [outputs]. One product multiplies the patches of a row of the image by the weights of
    all rows of the output that it is part of; weights of rows that it is not part of are zero.
    """
    line: tl.constexpr = across * channels
    image_line: tl.constexpr = (width + across - 1) * channels
    pieces: tl.constexpr = (width + pixels - 1) // pixels  # of a row
    groups: tl.constexpr = (height + high - 1) // high  # of the rows of an image
    parts: tl.constexpr = (line + deep - 1) // deep
    group = tl.program_id(0) // pieces
    top = group % groups * high
    number = (group // groups).to(tl.int64)  # of the image; more elements than int32 counts
    position = tl.program_id(0) % pieces * pixels + tl.arange(0, pixels)
    both = tl.arange(0, high * some)
    row, output = both // some, tl.program_id(1) * some + both % some
    present, known = position < width, output < outputs
    seen = image + (number * (height + down - 1) + top) * image_line
    total = tl.zeros((pixels, high * some), wide)
    for turn in range((high + down - 1) * parts):
        below, column = turn // parts, turn % parts * deep + tl.arange(0, deep)
        taken = column < line
        patch_at = tl.max_contiguous(position[:, None] * channels + column[None, :], (1, vector))
        inside = present & (below < height + down - 1 - top)
        patch = tl.load(seen + below * image_line + patch_at, mask=inside[:, None] & taken[None, :], other=0)
        tap = below - row
        weight_at = (output * down + tap) * line
        met = known & (tap >= 0) & (tap < down)
        part = tl.load(
            weight + weight_at[None, :] + column[:, None], mask=met[None, :] & taken[:, None], other=0
        )
        total = add_product(total, patch, part)
    if biased:
        total += tl.load(bias + output, mask=known, other=0).to(wide)[None, :]
    target = result + ((number * height + top) * width + position[:, None]) * outputs
    target += (row * width * outputs + output)[None, :]
    stored = present[:, None] & (known & (row < height - top))[None, :]
    tl.store(target, total.to(result.dtype.element_ty), mask=stored)


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
    position = tl.arange(0, pixels)
    slope_at = position[:, None] * outputs + output[None, :]
    patch_at = position[:, None] * channels + (column // line * image_line + column % line)[None, :]
    patch_at = tl.max_contiguous(patch_at, (1, vector))
    total = tl.zeros((some, deep), wide)
    for turn in range(turns):
        piece = tl.program_id(0) * turns + turn
        row, first = piece // pieces, piece % pieces * pixels
        present = ((position < width - first) & (row < rows))[:, None]
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
    """Whether :func:`convolve` is worth it for ``weight``: PyTorch's own is as fast for more columns."""
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
    sizes: dict[str, Any] = {"pixels": WIDE, "high": 1, "some": WIDE, "deep": WIDE}
    if half:  # products have 16 rows and columns at least
        pixels, deep = (max(16, triton.next_power_of_2(size)) for size in (width, across * channels))
        sizes = {"pixels": min(FORWARD_PIXELS, pixels), "deep": min(FORWARD_COLUMNS, deep)}
        sizes |= {"high": FORWARD_ROWS, "some": min(OUTPUTS, max(16, triton.next_power_of_2(outputs)))}
    groups = -(-height // sizes["high"]) * -(-width // sizes["pixels"])
    _convolution[(count * groups, -(-outputs // sizes["some"]))](
        image, weight, bias, result, height, width, outputs, channels, down, across, bias is not None,
        wide=tl.float32 if half else tl.float64, vector=FORWARD_VECTOR, num_warps=FORWARD_WARPS,
        num_stages=FORWARD_STAGES, **sizes
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
