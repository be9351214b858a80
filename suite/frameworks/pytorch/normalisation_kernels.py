"""Triton kernels of the sums of batch normalisation, over the rows of [rows, channels].

A program adds up some rows of a block of channels. A second launch adds up what the programs found, in a
fixed order, so that results repeat bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import triton
import triton.language as tl
from torch import Tensor

from suite.frameworks.pytorch.kernels import sum_of_rows

CHANNELS = 64  # of a program, at most: two bytes each fill a cache line
# Rows x channels that a program loads at a time.
MOMENTS, GRADIENTS, OF_SUM, OF_SUMS = 4096, 2048, 2048, 1024
PROGRAMS = 528  # at most: four for each multiprocessor of an H100 or H200
WARPS = 8
FEW = 16  # channels of a program of the second launch
FOUND = 128  # results of the first launch that it loads at a time


@triton.jit(do_not_specialize=["rows", "turns"])
def _deviations(  # type: ignore[no-untyped-def]
    x, found, rows, turns, channels, line, wide: tl.constexpr, high: tl.constexpr, deep: tl.constexpr
):
    """``found`` [2, programs, channels]: the sums of x - s and of its square; s is the first row.

    A channel whose mean is far from zero loses no precision: s is about as far from the mean as other values.
    """
    channel = tl.program_id(1) * deep + tl.arange(0, deep)[None, :]
    inside = channel < channels
    shift = tl.load(x + channel, mask=inside, other=0).to(wide)
    first = tl.zeros((high, deep), wide)
    second = tl.zeros((high, deep), wide)
    turn = 0
    while turn < turns:  # Triton's interpreter cannot take the end of a range from an argument
        row = (turn * tl.num_programs(0) + tl.program_id(0)) * high + tl.arange(0, high)[:, None]
        present = (row < rows) & inside
        value = tl.load(x + row.to(tl.int64) * line + channel, mask=present, other=0).to(wide)
        apart = tl.where(present, value - shift, 0)
        first += apart
        second += apart * apart
        turn += 1
    target = found + tl.program_id(0) * channels + channel
    tl.store(target, tl.sum(first, 0)[None, :], mask=inside)
    tl.store(target + tl.num_programs(0) * channels, tl.sum(second, 0)[None, :], mask=inside)


@triton.jit(do_not_specialize=["rows", "turns"])
def _products(  # type: ignore[no-untyped-def]
    slopes, x, mean, inverse, gamma, beta, found, rows, turns, channels, line, slope_line,
    relu: tl.constexpr, wide: tl.constexpr, high: tl.constexpr, deep: tl.constexpr
):  # fmt: skip
    """``found`` [2, programs, channels]: the sums of the slopes and of slope * (x - mean).

    With ``relu``, a ReLU follows: slopes where the normalised x is not positive count as zero.
    """
    channel = tl.program_id(1) * deep + tl.arange(0, deep)[None, :]
    inside = channel < channels
    middle = tl.load(mean + channel, mask=inside, other=0)
    scale = tl.load(inverse + channel, mask=inside, other=0) * tl.load(gamma + channel, mask=inside, other=0)
    offset = tl.load(beta + channel, mask=inside, other=0)
    first = tl.zeros((high, deep), wide)
    second = tl.zeros((high, deep), wide)
    turn = 0
    while turn < turns:
        row = (turn * tl.num_programs(0) + tl.program_id(0)) * high + tl.arange(0, high)[:, None]
        present = (row < rows) & inside
        at = row.to(tl.int64)
        slope = tl.load(slopes + at * slope_line + channel, mask=present, other=0).to(wide)
        apart = tl.load(x + at * line + channel, mask=present, other=0).to(wide) - middle
        if relu:
            slope = tl.where(apart * scale + offset <= 0, 0, slope)  # NaN passes, as in F.relu
        first += slope
        second += slope * apart
        turn += 1
    target = found + tl.program_id(0) * channels + channel
    tl.store(target, tl.sum(first, 0)[None, :], mask=inside)
    tl.store(target + tl.num_programs(0) * channels, tl.sum(second, 0)[None, :], mask=inside)


@triton.jit(do_not_specialize=["rows", "turns"])
def _products_of_sum(  # type: ignore[no-untyped-def]
    slopes, others, y, x, mean, x2, mean2, of_total, found, rows, turns, channels,
    slope_line, other_line, y_line, line, line2, wide: tl.constexpr, high: tl.constexpr, deep: tl.constexpr
):  # fmt: skip
    """The sums of :func:`_products` where y = max(total, 0) is known, and total = normalised x + shortcut.

    Also writes the slopes whose sums these are to ``of_total`` [rows, channels]: ``slopes`` plus ``others``,
    and 0 where y is not positive. Unless ``x2`` is None, the shortcut is normalised x2, and ``found`` has a
    third row: the sums of slope * (x2 - mean2).
    """
    channel = tl.program_id(1) * deep + tl.arange(0, deep)[None, :]
    inside = channel < channels
    middle = tl.load(mean + channel, mask=inside, other=0)
    if x2 is not None:
        middle2 = tl.load(mean2 + channel, mask=inside, other=0)
    first = tl.zeros((high, deep), wide)
    second = tl.zeros((high, deep), wide)
    third = tl.zeros((high, deep), wide)
    turn = 0
    while turn < turns:
        row = (turn * tl.num_programs(0) + tl.program_id(0)) * high + tl.arange(0, high)[:, None]
        present = (row < rows) & inside
        at = row.to(tl.int64)
        slope = tl.load(slopes + at * slope_line + channel, mask=present, other=0).to(wide)
        slope += tl.load(others + at * other_line + channel, mask=present, other=0).to(wide)
        output = tl.load(y + at * y_line + channel, mask=present, other=0).to(wide)
        apart = tl.load(x + at * line + channel, mask=present, other=0).to(wide) - middle
        slope = tl.where(output <= 0, 0, slope)  # NaN passes, as in F.relu
        tl.store(of_total + at * channels + channel, slope.to(of_total.dtype.element_ty), mask=present)
        first += slope
        second += slope * apart
        if x2 is not None:
            third += slope * (tl.load(x2 + at * line2 + channel, mask=present, other=0).to(wide) - middle2)
        turn += 1
    target = found + tl.program_id(0) * channels + channel
    size = tl.num_programs(0) * channels
    tl.store(target, tl.sum(first, 0)[None, :], mask=inside)
    tl.store(target + size, tl.sum(second, 0)[None, :], mask=inside)
    if x2 is not None:
        tl.store(target + 2 * size, tl.sum(third, 0)[None, :], mask=inside)


@triton.jit(do_not_specialize=["programs", "rows"])
def _moments(  # type: ignore[no-untyped-def]
    found, x, mean, variance, inverse, programs, rows, channels, epsilon: tl.constexpr,
    wide: tl.constexpr, high: tl.constexpr, few: tl.constexpr
):  # fmt: skip
    """Mean, variance and 1 / sqrt(variance + epsilon) from what :func:`_deviations` found."""
    channel = tl.program_id(0) * few + tl.arange(0, few)
    inside = channel < channels
    count = rows.to(wide)
    first = sum_of_rows(found, channel, channels, programs, wide, high, few) / count
    second = sum_of_rows(found + programs * channels, channel, channels, programs, wide, high, few) / count
    spread = tl.maximum(second - first * first, 0, propagate_nan=tl.PropagateNan.ALL)
    shift = tl.load(x + channel, mask=inside, other=0).to(wide)
    tl.store(mean + channel, shift + first, mask=inside)
    tl.store(variance + channel, spread, mask=inside)
    tl.store(inverse + channel, 1 / tl.sqrt(spread + epsilon), mask=inside)


@triton.jit(do_not_specialize=["programs"])
def _gradients(  # type: ignore[no-untyped-def]
    found, inverse, of_gamma, of_beta, inverse2, of_gamma2, of_beta2, programs, channels,
    wide: tl.constexpr, high: tl.constexpr, few: tl.constexpr
):  # fmt: skip
    """The gradients of gamma and beta from what :func:`_products` or :func:`_products_of_sum` found.

    Also those of the x2 of the latter, unless ``inverse2`` is None.
    """
    channel = tl.program_id(0) * few + tl.arange(0, few)
    inside = channel < channels
    first = sum_of_rows(found, channel, channels, programs, wide, high, few)
    second = sum_of_rows(found + programs * channels, channel, channels, programs, wide, high, few)
    tl.store(of_beta + channel, first, mask=inside)
    tl.store(of_gamma + channel, second * tl.load(inverse + channel, mask=inside, other=0), mask=inside)
    if inverse2 is not None:
        third = sum_of_rows(found + 2 * programs * channels, channel, channels, programs, wide, high, few)
        tl.store(of_beta2 + channel, first, mask=inside)
        tl.store(of_gamma2 + channel, third * tl.load(inverse2 + channel, mask=inside, other=0), mask=inside)


@dataclass(frozen=True)
class _Plan:
    """How the two launches share ``x`` [rows, channels] among programs."""

    grid: tuple[int, int]
    turns: int  # of a program's loop over its rows
    sizes: dict[str, Any]
    last_grid: tuple[int]
    last_sizes: dict[str, Any]

    def found(self, like: Tensor, sums: int = 2) -> Tensor:
        """Memory for the sums that the first launch finds."""
        return like.new_empty(sums, self.grid[0], like.shape[0])


def _plan(x: Tensor, like: Tensor, elements: int) -> _Plan:
    """For ``x`` [rows, channels], computing in the type of ``like``; ``elements`` are loaded at a time."""
    rows, channels = x.shape
    deep = min(CHANNELS, triton.next_power_of_2(channels))
    high = max(1, elements // deep)
    blocks, groups = -(-rows // high), -(-channels // deep)
    turns = -(-blocks // max(1, PROGRAMS // groups))
    programs = -(-blocks // turns)
    common = {"wide": tl.float64 if like.element_size() == 8 else tl.float32, "num_warps": WARPS}
    last = {"high": min(FOUND, triton.next_power_of_2(programs)), "few": FEW}
    sizes = {"high": high, "deep": deep}
    return _Plan((programs, groups), turns, sizes | common, (-(-channels // FEW),), last | common)


def moments(x: Tensor, written: tuple[Tensor, Tensor, Tensor], epsilon: float) -> None:
    """Write the mean, biased variance and 1 / sqrt(variance + epsilon) of each column of ``x``.

    ``x`` is [rows, channels], with adjacent columns; ``written``, each [channels], are float64 for float64,
    else float32.
    """
    rows, channels = x.shape
    plan = _plan(x, written[0], MOMENTS)
    found = plan.found(written[0])
    _deviations[plan.grid](x, found, rows, plan.turns, channels, x.stride(0), **plan.sizes)
    _moments[plan.last_grid](found, x, *written, plan.grid[0], rows, channels, epsilon, **plan.last_sizes)


def gradients(
    slopes: Tensor, x: Tensor, statistics: tuple[Tensor, Tensor], scales: tuple[Tensor, Tensor], relu: bool,
    written: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Write the gradients of gamma and beta to ``written``, for ``slopes`` and ``x`` [rows, channels].

    ``statistics`` are those of :func:`moments`, ``scales`` gamma and beta; ``relu``: one follows, and
    ``slopes`` are those of its output.
    """
    rows, channels = x.shape
    plan = _plan(x, statistics[0], GRADIENTS)
    found = plan.found(statistics[0])
    _products[plan.grid](
        slopes, x, *statistics, *scales, found, rows, plan.turns, channels, x.stride(0), slopes.stride(0),
        relu, **plan.sizes
    )  # fmt: skip
    _gradients[plan.last_grid](
        found, statistics[1], *written, None, None, None, plan.grid[0], channels, **plan.last_sizes
    )


Normalised: TypeAlias = "tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]"


def gradients_of_sum(
    slopes: tuple[Tensor, Tensor], y: Tensor, one: Normalised, two: Normalised | None, of_total: Tensor
) -> None:
    """Write the gradients of y = max(total, 0), where total = normalised x + shortcut, [rows, channels].

    The gradient of y is the sum of the two ``slopes``, that of the total goes to ``of_total``. Its rows have
    no gaps; columns of all are adjacent. ``one``: x, its statistics as of :func:`moments`, and what the
    gradients of gamma and beta are written to. ``two``: the same of the shortcut, if it is normalised too.
    """
    (x, (mean, inverse), written), (rows, channels) = one, y.shape
    plan = _plan(x, mean, OF_SUM if two is None else OF_SUMS)
    found = plan.found(mean, 2 if two is None else 3)
    x2, (mean2, inverse2), written2 = two or (None, (None, None), (None, None))
    lines = *(tensor.stride(0) for tensor in (*slopes, y, x)), 0 if x2 is None else x2.stride(0)
    _products_of_sum[plan.grid](
        *slopes, y, x, mean, x2, mean2, of_total, found, rows, plan.turns, channels, *lines, **plan.sizes
    )
    _gradients[plan.last_grid](
        found, inverse, *written, inverse2, *written2, plan.grid[0], channels, **plan.last_sizes
    )
