"""Weights of the stacked LSTM in the layout of its kernels, and their gradients back: one launch for all.

See :mod:`suite.frameworks.pytorch.stacked_lstm` for H, L and P.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # rows and columns of a program; P is a multiple of it


@triton.jit
def _pack_one(  # type: ignore[no-untyped-def]
    matrix, packed, turned, width, padded: tl.constexpr, both: tl.constexpr, block: tl.constexpr
):
    """Copy ``matrix`` [4, H, H] to ``packed`` [P, 4, P], and if ``both``, transposed, to ``turned``."""
    row = tl.program_id(0) * block + tl.arange(0, block)
    column = tl.program_id(1) * block + tl.arange(0, block)
    gate, unit = row % 4, row // 4
    inside = (unit < width)[:, None] & (column < width)[None, :]
    value = tl.load(matrix + (gate * width + unit)[:, None] * width + column[None, :], mask=inside, other=0)
    value = value.to(packed.dtype.element_ty)
    tl.store(packed + row[:, None] * padded + column[None, :], value)
    if both:
        tl.store(turned + column[:, None] * (4 * padded) + row[None, :], tl.trans(value))


@triton.jit
def _pack(  # type: ignore[no-untyped-def]
    matrices, packed, turned, width, padded: tl.constexpr, both: tl.constexpr, count: tl.constexpr,
    block: tl.constexpr
):  # fmt: skip
    """:func:`_pack_one` for each of ``count`` matrices; matrix 0 is needed transposed by no kernel."""
    at = tl.program_id(2)
    start = at * (4 * padded * padded)
    for index in tl.static_range(count):
        if at == index:
            _pack_one(
                matrices[index], packed + start, turned + start, width, padded, both and index > 0, block
            )


@triton.jit
def _unpack_one(  # type: ignore[no-untyped-def]
    packed, matrix, width, padded: tl.constexpr, block: tl.constexpr
):
    """Copy ``packed`` [P, 4, P] to ``matrix`` [4, H, H]."""
    row = tl.program_id(0) * block + tl.arange(0, block)
    column = tl.program_id(1) * block + tl.arange(0, block)
    gate, unit = row % 4, row // 4
    inside = (unit < width)[:, None] & (column < width)[None, :]
    value = tl.load(packed + row[:, None] * padded + column[None, :], mask=inside)
    target = matrix + (gate * width + unit)[:, None] * width + column[None, :]
    tl.store(target, value.to(matrix.dtype.element_ty), mask=inside)


@triton.jit
def _unpack(  # type: ignore[no-untyped-def]
    inputs, hidden, matrices, width, padded: tl.constexpr, count: tl.constexpr, block: tl.constexpr
):
    """:func:`_unpack_one` for each of ``count`` matrices: even ones from ``inputs``, odd from ``hidden``."""
    at = tl.program_id(2)
    start = at // 2 * (4 * padded * padded)
    for index in tl.static_range(count):
        if at == index:
            packed = hidden if index % 2 == 1 else inputs
            _unpack_one(packed + start, matrices[index], width, padded, block)


def _grid(padded: int, count: int) -> tuple[int, int, int]:
    return 4 * padded // BLOCK, padded // BLOCK, count


def pack(matrices: Sequence[Tensor], padded: int, kind: torch.dtype, both: bool) -> tuple[Tensor, Tensor]:
    """The 2L ``matrices`` [4H, H] in ``kind``: [2L, 4P, P], and if ``both`` transposed, [2L, P, 4P].

    The gates of a unit lie side by side, zeros behind H. The transposed matrix 0 stays undefined.
    """
    count = len(matrices)
    packed = torch.empty(count, 4 * padded, padded, dtype=kind, device=matrices[0].device)
    turned = packed.new_empty(count, padded, 4 * padded) if both else packed
    sources = tuple(matrix.contiguous() for matrix in matrices)
    width = matrices[0].shape[1]
    _pack[_grid(padded, count)](sources, packed, turned, width, padded, both, count, BLOCK)
    return packed, turned


def unpack(inputs: Tensor, hidden: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of matrices ``like`` [4H, H], those of :func:`pack`, from those of the packed ones.

    ``inputs`` and ``hidden`` [L, 4P, P] belong to the matrices with even and with odd numbers.
    """
    found = [torch.empty_like(matrix, memory_format=torch.contiguous_format) for matrix in like]
    padded, width = inputs.shape[2], like[0].shape[1]
    _unpack[_grid(padded, len(found))](inputs, hidden, tuple(found), width, padded, len(found), BLOCK)
    return found
