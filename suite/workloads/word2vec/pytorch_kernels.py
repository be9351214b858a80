"""Triton kernels of a training step of skip-gram: gradients of the rows, and their addition to the tables.

:func:`differentiate` reads the tables and :func:`descend` changes them, so that every gradient is that at the
weights before the step. Neither stores the gradients of targets, which are 73 MB at reference scale: the
second computes them again, from the errors and a copy of the words' rows, and adds them to the table at once.
The sizes of blocks are powers of two, at least the 16 that ``tl.dot`` needs; what is too much is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from suite.workloads.word2vec import spec

# Of each kernel: the most columns of a table that a program handles at once, and its warps.
DIFFERENTIATE = 256, 2
DESCEND = 128, 1


class Gradients(NamedTuple):
    """What :func:`differentiate` found at C centres with T targets and S = 2W + 1 positions of a window.

    ``losses`` [C, S] of each context; ``totals`` [2, C], a centre's loss and number of contexts;
    ``by_context`` [C, S, D], the gradient of each context's row, undefined where there is no context. In the
    type of products: ``errors`` [C, >= T, >= S], derivatives by scores, and ``windows`` [C + 2W, D], the rows
    of all words.
    """

    losses: Tensor
    totals: Tensor
    by_context: Tensor
    errors: Tensor
    windows: Tensor


def differentiate(tables: Sequence[Tensor], batch: Mapping[str, Tensor], dtype: torch.dtype) -> Gradients:
    """The gradients of the summed loss of ``batch`` by the rows of both ``tables`` [V, D].

    ``batch`` has the arrays of :mod:`suite.workloads.word2vec.data`. Products are in ``dtype``, sums of
    float32 or wider.
    """
    inputs, outputs = tables
    contexts = batch["contexts"]
    (count, span), width = contexts.shape, inputs.shape[1]
    targets = batch["targets"].shape[1]
    rows, columns = _block(targets), _block(span)
    found = Gradients(
        torch.empty_like(contexts),
        contexts.new_empty(2, count),
        contexts.new_empty(count, span, width),
        contexts.new_empty(count, rows, columns, dtype=dtype),
        contexts.new_empty(len(batch["words"]), width, dtype=dtype),
    )
    arrays = (batch[name] for name in ("words", "targets", "contexts", "live"))
    most, warps = DIFFERENTIATE
    sizes = targets, span, width, rows, columns, min(most, _block(width))
    _differentiate[(count,)](
        *(inputs, outputs, *arrays, *found, count, *sizes, spec.SATURATION, _precision()), num_warps=warps
    )
    return found


def descend(changed: Sequence[Tensor], found: Gradients, batch: Mapping[str, Tensor], rate: Tensor) -> None:
    """Add to the rows of ``changed``, both tables or sums of their shape, -rate * share * gradient.

    ``rate`` has one element, on the device; ``batch`` has the shares of the rows.
    """
    count, span = batch["contexts"].shape
    targets, width = batch["targets"].shape[1], changed[0].shape[1]
    names = ("words", "targets", "contexts", "live", "word_share", "target_share")
    most, warps = DESCEND
    block = min(most, _block(width))
    sizes = targets, span, width, *found.errors.shape[1:], block
    _descend[(count + len(batch["words"]), triton.cdiv(width, block))](
        *(*changed, *(batch[name] for name in names), rate, *found[2:], count, *sizes, _precision()),
        num_warps=warps,
    )


def _block(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"  # of products of float32


@triton.jit
def _differentiate(  # type: ignore[no-untyped-def]
    inputs, outputs, words, targets, contexts, live, losses, totals, by_context, errors, windows, count,
    T: tl.constexpr, S: tl.constexpr, D: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, block: tl.constexpr,
    saturation: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """One program for each centre. Products are in the type of ``errors``."""
    centre = tl.program_id(0).to(tl.int64)
    t, s, d = tl.arange(0, rows), tl.arange(0, columns), tl.arange(0, block)
    context = tl.load(contexts + centre * S + s, mask=s < S, other=0)
    valid = tl.load(live + centre * T + t, mask=t < T, other=0)
    word = tl.load(words + centre + s, mask=s < S, other=0).to(tl.int64)[:, None]
    target = tl.load(targets + centre * T + t, mask=t < T, other=0).to(tl.int64)[:, None]
    # Each program keeps the row of its first position, and the last one those of all its positions.
    keeps = ((s < S) & ((s == 0) | (centre == count - 1)))[:, None]
    reads = keeps | (context != 0)[:, None]
    multiplies = (valid != 0)[:, None]

    score = tl.zeros((rows, columns), losses.dtype.element_ty)
    for first in tl.static_range(0, D, block):
        at = (first + d)[None, :]
        window = tl.load(inputs + word * D + at, mask=reads & (at < D), other=0).to(errors.dtype.element_ty)
        tl.store(windows + (centre + s)[:, None] * D + at, window, mask=keeps & (at < D))
        row = tl.load(outputs + target * D + at, mask=multiplies & (at < D), other=0)
        row = row.to(errors.dtype.element_ty)
        score = tl.dot(row, tl.trans(window), score, input_precision=precision, out_dtype=score.dtype)

    # As ``errors`` of pytorch_ops; the first target is the true one.
    weight = valid[:, None] * context[None, :]
    true = (t == 0)[:, None]
    small = tl.exp(-tl.abs(score))  # of the sigmoid and the softplus, for scores of either sign
    chance = tl.where(score >= 0, 1.0, small) / (1.0 + small)
    chance = tl.where(tl.abs(score) > saturation, (score > 0).to(score.dtype), chance)
    error = (tl.where(true, chance - 1.0, chance) * weight).to(errors.dtype.element_ty)
    loss = (tl.maximum(tl.where(true, -score, score), 0.0) + tl.log(1.0 + small)) * weight
    loss = tl.sum(loss, axis=0)
    tl.store(losses + centre * S + s, loss, mask=s < S)
    tl.store(totals + centre, tl.sum(loss))
    tl.store(totals + count + centre, tl.sum(context))
    tl.store(errors + (centre * rows + t)[:, None] * columns + s[None, :], error)

    for first in tl.static_range(0, D, block):
        at = (first + d)[None, :]
        if block < D:  # otherwise the rows are still in registers
            row = tl.load(outputs + target * D + at, mask=multiplies & (at < D), other=0)
            row = row.to(errors.dtype.element_ty)
        gradient = tl.dot(tl.trans(error), row, input_precision=precision, out_dtype=score.dtype)
        into = by_context + (centre * S + s)[:, None] * D + at
        tl.store(into, gradient, mask=(context != 0)[:, None] & (at < D))


@triton.jit
def _descend(  # type: ignore[no-untyped-def]
    inputs, outputs, words, targets, contexts, live, word_share, target_share, rate,
    by_context, errors, windows, count,
    T: tl.constexpr, S: tl.constexpr, D: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, block: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """One program for the targets of each centre, and behind them one for each position of ``words``.

    The second axis of the grid are blocks of columns. Atomic additions need no order: no program reads what
    they change.
    """
    program = tl.program_id(0).to(tl.int64)
    t, s = tl.arange(0, rows), tl.arange(0, columns)
    d = tl.program_id(1) * block + tl.arange(0, block)
    at, inside = d[None, :], (d < D)[None, :]
    step = -tl.load(rate)
    if program < count:
        context = tl.load(contexts + program * S + s, mask=s < S, other=0)
        valid = tl.load(live + program * T + t, mask=t < T, other=0)
        target = tl.load(targets + program * T + t, mask=t < T, other=0).to(tl.int64)[:, None]
        share = tl.load(target_share + program * T + t, mask=t < T, other=0)
        error = tl.load(errors + (program * rows + t)[:, None] * columns + s[None, :])
        window = windows + (program + s)[:, None] * D + at
        window = tl.load(window, mask=(context != 0)[:, None] & inside, other=0)
        by_target = tl.dot(error, window, input_precision=precision, out_dtype=share.dtype)
        by_target *= (share * step)[:, None]
        touched = (valid * tl.sum(context) != 0)[:, None] & inside
        tl.atomic_add(outputs + target * D + at, by_target, mask=touched, sem="relaxed")
    else:
        position = program - count
        centre = position - s  # of the window whose position s this word is
        known = (s < S) & (centre >= 0) & (centre < count)
        context = tl.load(contexts + centre * S + s, mask=known, other=0)
        parts = by_context + (centre * S + s)[:, None] * D + at
        parts = tl.load(parts, mask=(context != 0)[:, None] & inside, other=0)
        by_word = tl.sum(parts, axis=0) * (tl.load(word_share + position) * step)
        word = tl.load(words + position).to(tl.int64)
        tl.atomic_add(inputs + word * D + d, by_word, mask=d < D, sem="relaxed")
