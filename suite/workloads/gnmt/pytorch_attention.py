"""Triton kernels of GNMT's attention scores and of their gradients; nothing of size [B, T, S, H] is stored.

A score is the sum over H of tanh(query + key) * vector. Forward, a program makes the scores of one query
and some keys of a sentence. Backward, one makes the gradients of some queries, or of some keys, in a block of
columns: one launch for each of the two, which compute every tanh again. Sums are in a fixed order, so that
results repeat bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from suite.frameworks.pytorch.kernels import tanh

ROWS = 16  # of a program: keys forward; queries or keys backward
COLUMNS = 64  # of H that a program loads at a time
UNROLLED = 2  # rows of the other sequence in an iteration backward
WARPS = 4
FAST_TANH = 7, 5  # the first compute capability with tanh.approx (PTX ISA)


@triton.jit
def _squashed(x, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """The tanh; with ``fast`` the GPU's own instruction, within 2^-11 (half precision rounds as much)."""
    if fast:
        result = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = tanh(x)
    return result


@triton.jit(do_not_specialize=["batch", "targets", "sources"])
def _forward(  # type: ignore[no-untyped-def]
    queries, keys, vector, scores, batch, targets, sources,
    width: tl.constexpr, wide: tl.constexpr, fast: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    """``scores`` [B, T, S]; program (block of keys, query, sentence)."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    target = tl.program_id(1)
    sentence = tl.program_id(2).to(tl.int64)
    line = batch.to(tl.int64) * width  # between the steps of a sentence
    inside = row < sources
    key = keys + sentence * width + row[:, None] * line
    query = queries + sentence * width + target * line
    total = tl.zeros((rows, columns), wide)
    for first in range(0, width, columns):
        column = first + tl.arange(0, columns)
        there = column < width
        q = tl.load(query + column, mask=there, other=0).to(wide)
        k = tl.load(key + column[None, :], mask=inside[:, None] & there[None, :], other=0).to(wide)
        v = tl.load(vector + column, mask=there, other=0)
        total += _squashed(q[None, :] + k, fast) * v[None, :]
    tl.store(scores + (sentence * targets + target) * sources + row, tl.sum(total, 1), mask=inside)


@triton.jit(do_not_specialize=["batch", "length", "others", "by_row", "by_other"])
def _backward(  # type: ignore[no-untyped-def]
    own, other, vector, given, gradient, sums, batch, length, others, by_row, by_other,
    width: tl.constexpr, wide: tl.constexpr, fast: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    unrolled: tl.constexpr, adds: tl.constexpr
):  # fmt: skip
    """The ``gradient`` of ``own`` [length, B, H] beside ``other`` [others, B, H].

    Program (block of columns, block of rows, sentence). The slope of row r and row o of the other is
    ``given[sentence, r * by_row + o * by_other]``. With ``adds``, also ``sums`` [blocks of rows, B, H], what
    the program adds to the gradient of ``vector``.
    """
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    sentence = tl.program_id(2).to(tl.int64)
    line = batch.to(tl.int64) * width
    there = column < width
    inside = row < length
    at = sentence * width + row[:, None] * line + column[None, :]
    present = inside[:, None] & there[None, :]
    mine = tl.load(own + at, mask=present, other=0).to(wide)
    slopes = given + sentence * length * others + row * by_row
    beside = other + sentence * width + column
    total = tl.zeros((rows, columns), wide)
    added = tl.zeros((rows, columns), wide)
    start = 0
    while start < others:  # Triton's interpreter cannot take the end of a range from an argument
        for number in tl.static_range(unrolled):
            step = start + number
            exists = step < others
            its = tl.load(beside + step * line, mask=there & exists, other=0).to(wide)
            slope = tl.load(slopes + step * by_other, mask=inside & exists, other=0)[:, None]
            value = _squashed(mine + its[None, :], fast)
            total += slope * (1.0 - value * value)
            if adds:
                added += slope * value
        start += unrolled
    v = tl.load(vector + column, mask=there, other=0)
    tl.store(gradient + at, (total * v[None, :]).to(gradient.dtype.element_ty), mask=present)
    if adds:
        target = sums + (tl.program_id(1) * batch.to(tl.int64) + sentence) * width + column
        tl.store(target, tl.sum(added, 0), mask=there)


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        queries, keys, vector = queries.contiguous(), keys.contiguous(), vector.contiguous()
        (targets, batch, _), sources = queries.shape, keys.shape[0]
        scores = vector.new_empty(batch, targets, sources)
        grid = triton.cdiv(sources, ROWS), targets, batch
        _forward[grid](queries, keys, vector, scores, batch, targets, sources, **_settings(queries, vector))
        ctx.save_for_backward(queries, keys, vector)
        return scores

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, given: Tensor) -> Any:
        queries, keys, vector = ctx.saved_tensors
        given = given.contiguous()
        (targets, batch, width), sources = queries.shape, keys.shape[0]
        settings = _settings(queries, vector)
        blocks = triton.cdiv(width, COLUMNS)
        by_queries, by_keys = torch.empty_like(queries), torch.empty_like(keys)
        sums = vector.new_empty(triton.cdiv(targets, ROWS), batch, width)
        _backward[blocks, len(sums), batch](
            queries, keys, vector, given, by_queries, sums, batch, targets, sources, sources, 1,
            unrolled=UNROLLED, adds=True, **settings
        )  # fmt: skip
        _backward[blocks, triton.cdiv(sources, ROWS), batch](
            keys, queries, vector, given, by_keys, sums, batch, sources, targets, 1, sources,
            unrolled=UNROLLED, adds=False, **settings
        )  # fmt: skip
        return by_queries, by_keys, sums.sum(dim=(0, 1))


def _settings(queries: Tensor, vector: Tensor) -> dict[str, Any]:
    """Compile-time arguments of both kernels."""
    half = queries.is_cuda and queries.element_size() == 2
    return {
        "width": queries.shape[2],
        "wide": tl.float64 if vector.dtype == torch.float64 else tl.float32,
        "fast": half and torch.cuda.get_device_capability(queries.device) >= FAST_TANH,
        "rows": ROWS,
        "columns": COLUMNS,
        "num_warps": WARPS,
    }


def score(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Scores [B, T, S] in the type of ``vector``, for queries [T, B, H], keys [S, B, H] and ``vector`` [H].

    ``vector`` is float32, or float64 with queries and keys in float64.
    """
    result: Tensor = _Score.apply(queries, keys, vector)  # type: ignore[no-untyped-call]
    return result
