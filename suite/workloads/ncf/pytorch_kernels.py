"""Triton kernels of NeuMF's scores and of their gradient: one launch each for a batch.

A program computes all layers for a block of samples. Activations and their gradients are stored, as the
products for the weights' gradients need them. The program reads activations again, from the cache, for its
next layer. Gradients of half precision also stay in registers for the layer before: some columns of the first
hidden layer at a time, from which a sum for all columns of the inputs grows. In float64 they do not fit.
Gradients of embeddings, biases and the output layer are added up atomically, so that sums of the same numbers
may differ in their last bits. Inference, in half precision only, stores nothing but the scores. The sizes of
blocks are powers of two, at least the 16 that ``tl.dot`` needs; what is too much is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from suite.frameworks.pytorch.kernels import add_product

LAYERS = 3  # of the MLP
# Of each kernel: samples of a program; columns of a product at once, and depth of its blocks, at most; warps;
# blocks that are loaded ahead, plus one. Backward's depth is unused: it multiplies by all rows of a matrix.
FORWARD = 64, 64, 64, 4, 3
BACKWARD = 64, 32, 64, 4, 3
EXACT = 16, 32, 4, 4, 1  # both in fp64, without tensor cores
INFER = 256, 64, 64, 8, 2  # its depth is unused: it multiplies by all rows of a matrix


@triton.jit
def _samples(users, items, count, rows: tl.constexpr):  # type: ignore[no-untyped-def]
    """The program's first sample, its ``rows`` rows [rows, 1], which of them exist, and their ids."""
    start = tl.program_id(0).to(tl.int64) * rows  # a large batch has more elements than int32 counts
    row = tl.arange(0, rows)[:, None]
    inside = row < count - start
    user = tl.load(users + start + row, mask=inside, other=0)
    item = tl.load(items + start + row, mask=inside, other=0)
    return start, row, inside, user, item


@triton.jit
def _factors(mf_user, mf_item, user, item, inside, at, factors):  # type: ignore[no-untyped-def]
    """The columns ``at`` [1, n] of the rows that are multiplied, with zeros beyond ``factors``."""
    there = inside & (at < factors)
    of_user = tl.load(mf_user + user * factors + at, mask=there, other=0)
    return of_user, tl.load(mf_item + item * factors + at, mask=there, other=0)


@triton.jit
def _tile(weight, row, column, length, width, by_length, by_width):  # type: ignore[no-untyped-def]
    """The rows ``row`` [k] and columns ``column`` [n] of a matrix [length, width], with zeros beyond it.

    Element (k, n) of the matrix is at ``weight + k * by_length + n * by_width``.
    """
    there = (row[:, None] < length) & (column[None, :] < width)
    return tl.load(weight + row[:, None] * by_length + column[None, :] * by_width, mask=there, other=0)


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    source, weight, row, inside, first, length, width, by_length, by_width,
    wide: tl.constexpr, rows: tl.constexpr, across: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """Columns from ``first`` on of the rows of ``source`` [n, length] times a matrix as in :func:`_tile`."""
    total = tl.zeros((rows, across), wide)
    for k in range(0, length, depth):
        at = k + tl.arange(0, depth)
        left = tl.load(source + row * length + at[None, :], mask=inside & (at[None, :] < length), other=0)
        right = _tile(weight, at, first + tl.arange(0, across), length, width, by_length, by_width)
        total = add_product(total, left, right)
    return total


@triton.jit
def _hidden(  # type: ignore[no-untyped-def]
    source, weight, bias, target, row, inside, length: tl.constexpr, width: tl.constexpr, wide: tl.constexpr,
    rows: tl.constexpr, across: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """A layer: the ReLU of ``source`` [n, length] times ``weight`` [width, length] plus ``bias``, stored."""
    for first in tl.static_range(0, width, across):
        total = _product(
            source, weight, row, inside, first, length, width, 1, length, wide, rows, across, depth
        )
        column = first + tl.arange(0, across)[None, :]
        there = column < width
        total += tl.load(bias + column, mask=there, other=0).to(wide)
        total = tl.maximum(total, 0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(target + row * width + column, total.to(target.dtype.element_ty), mask=inside & there)
    tl.debug_barrier()  # other threads of the program read this


@triton.jit
def _joined(by_user, by_item, user, item, column, half):  # type: ignore[no-untyped-def]
    """Pointers to the columns ``column`` [1, n] of the rows of two tables [any, half] behind each other."""
    return tl.where(column < half, by_user + user * half + column, by_item + item * half + (column - half))


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    users, items, mf_user, mf_item, mlp_user, mlp_item, weight1, bias1, weight2, bias2, weight3, bias3,
    output, last_bias, inputs, hidden1, hidden2, hidden3, scores, count,
    factors: tl.constexpr, half: tl.constexpr, width1: tl.constexpr, width2: tl.constexpr,
    width3: tl.constexpr, wide: tl.constexpr, block: tl.constexpr, top: tl.constexpr, rows: tl.constexpr,
    across: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """Scores of ``rows`` samples, and what the gradient needs: inputs and outputs of the layers."""
    start, row, inside, user, item = _samples(users, items, count, rows)
    inputs += start * (2 * half)
    hidden1 += start * width1
    hidden2 += start * width2
    hidden3 += start * width3
    for k in range(0, half, depth):
        at = k + tl.arange(0, depth)[None, :]
        there = inside & (at < half)
        target = inputs + row * (2 * half) + at
        kind: tl.constexpr = inputs.dtype.element_ty
        tl.store(target, tl.load(mlp_user + user * half + at, mask=there, other=0).to(kind), mask=there)
        tl.store(
            target + half, tl.load(mlp_item + item * half + at, mask=there, other=0).to(kind), mask=there
        )
    tl.debug_barrier()
    _hidden(inputs, weight1, bias1, hidden1, row, inside, 2 * half, width1, wide, rows, across, depth)
    _hidden(hidden1, weight2, bias2, hidden2, row, inside, width1, width2, wide, rows, across, depth)
    _hidden(hidden2, weight3, bias3, hidden3, row, inside, width2, width3, wide, rows, across, depth)
    at = tl.arange(0, block)[None, :]
    of_user, of_item = _factors(mf_user, mf_item, user, item, inside, at, factors)
    share = tl.load(output + at, mask=at < factors, other=0).to(wide)
    total = tl.sum((of_user * of_item).to(hidden3.dtype.element_ty).to(wide) * share, 1)
    at = tl.arange(0, top)[None, :]
    share = tl.load(output + factors + at, mask=at < width3, other=0).to(wide)
    last = tl.load(hidden3 + row * width3 + at, mask=inside & (at < width3), other=0)
    total += tl.sum(last.to(wide) * share, 1) + tl.load(last_bias).to(wide)
    tl.store(scores + start + row, total[:, None], mask=inside)


@triton.jit
def _rectified(total, bias, column, width, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """The ReLU of the columns ``column`` [n] of a product plus their bias, in ``kind``."""
    total += tl.load(bias + column, mask=column < width, other=0).to(tl.float32)[None, :]
    return tl.maximum(total, 0, propagate_nan=tl.PropagateNan.ALL).to(kind)


@triton.jit
def _infer(  # type: ignore[no-untyped-def]
    users, items, mf_user, mf_item, mlp_user, mlp_item, weight1, bias1, weight2, bias2, weight3, bias3,
    output, last_bias, scores, count,
    factors: tl.constexpr, half: tl.constexpr, width1: tl.constexpr, width2: tl.constexpr,
    width3: tl.constexpr, block: tl.constexpr, joined: tl.constexpr, middle: tl.constexpr, top: tl.constexpr,
    rows: tl.constexpr, across: tl.constexpr
):  # fmt: skip
    """The sigmoids of the scores of ``rows`` samples; all layers stay in registers."""
    start, row, inside, user, item = _samples(users, items, count, rows)
    kind: tl.constexpr = weight1.dtype.element_ty
    source = tl.arange(0, joined)
    there = inside & (source[None, :] < 2 * half)
    both = tl.load(_joined(mlp_user, mlp_item, user, item, source[None, :], half), mask=there, other=0)
    second, third = tl.arange(0, middle), tl.arange(0, top)
    total = tl.zeros((rows, middle), tl.float32)
    for first in range(0, width1, across):
        column = first + tl.arange(0, across)
        part = tl.dot(both, _tile(weight1, source, column, 2 * half, width1, 1, 2 * half))
        hidden = _rectified(part, bias1, column, width1, kind)
        total = tl.dot(hidden, _tile(weight2, column, second, width1, width2, 1, width1), total)
    hidden = _rectified(total, bias2, second, width2, kind)
    total = tl.dot(hidden, _tile(weight3, second, third, width2, width3, 1, width2))
    hidden = _rectified(total, bias3, third, width3, kind)
    share = tl.load(output + factors + third, mask=third < width3, other=0).to(tl.float32)[None, :]
    score = tl.sum(hidden.to(tl.float32) * share, 1)
    at = tl.arange(0, block)[None, :]
    of_user, of_item = _factors(mf_user, mf_item, user, item, inside, at, factors)
    share = tl.load(output + at, mask=at < factors, other=0).to(tl.float32)
    score += tl.sum((of_user * of_item).to(tl.float32) * share, 1) + tl.load(last_bias).to(tl.float32)
    tl.store(scores + start + row, tl.sigmoid(score)[:, None], mask=inside)


@triton.jit
def _columns(source, row, inside, column, width):  # type: ignore[no-untyped-def]
    """The columns ``column`` [1, n] of the rows of ``source`` [n, width], with zeros beyond it."""
    return tl.load(source + row * width + column, mask=inside & (column < width), other=0)


@triton.jit
def _relu_gradient(total, found, target, by_bias, row, inside, column, width):  # type: ignore[no-untyped-def]
    """The gradient of a ReLU's input, stored as the columns ``column`` [1, n] of ``target`` [n, width].

    ``total`` is that of its output, ``found``; ``by_bias`` gets the sums over the rows.
    """
    slope = tl.where(found > 0, total, 0).to(target.dtype.element_ty)
    tl.store(target + row * width + column, slope, mask=inside & (column < width))
    _add_rows(by_bias + column, slope.to(total.dtype), column < width)
    return slope


@triton.jit
def _slopes(  # type: ignore[no-untyped-def]
    above, weight, hidden, target, by_bias, row, inside, length: tl.constexpr, width: tl.constexpr,
    wide: tl.constexpr, rows: tl.constexpr, across: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """The gradient before the ReLU that made ``hidden`` [n, width], stored; ``by_bias`` gets its sums.

    ``above`` [n, length] is that of the next layer, which has the weight [length, width].
    """
    for first in tl.static_range(0, width, across):
        total = _product(
            above, weight, row, inside, first, length, width, width, 1, wide, rows, across, depth
        )
        column = first + tl.arange(0, across)[None, :]
        found = _columns(hidden, row, inside, column, width)
        _relu_gradient(total, found, target, by_bias, row, inside, column, width)
    tl.debug_barrier()


@triton.jit
def _add_rows(target, values, there):  # type: ignore[no-untyped-def]
    """Add the sums of ``values`` [rows, n] over the rows to ``target`` [1, n]."""
    sums = tl.sum(values, 0)[None, :]
    tl.atomic_add(target, sums.to(target.dtype.element_ty), mask=there, sem="relaxed")


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    users, items, mf_user, mf_item, weight1, weight2, weight3, output, hidden1, hidden2, hidden3, given,
    slopes1, slopes2, slopes3, by_mf_user, by_mf_item, by_mlp_user, by_mlp_item, by_bias1, by_bias2, by_bias3,
    by_output, by_last_bias, count,
    factors: tl.constexpr, half: tl.constexpr, width1: tl.constexpr, width2: tl.constexpr,
    width3: tl.constexpr, wide: tl.constexpr, block: tl.constexpr, joined: tl.constexpr,
    middle: tl.constexpr, top: tl.constexpr, rows: tl.constexpr, across: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """Gradients of ``rows`` samples, whose scores have the gradients ``given`` [n]."""
    start, row, inside, user, item = _samples(users, items, count, rows)
    hidden1 += start * width1
    hidden2 += start * width2
    hidden3 += start * width3
    slopes1 += start * width1
    slopes2 += start * width2
    slopes3 += start * width3
    score = tl.load(given + start + row, mask=inside, other=0).to(wide)
    kind: tl.constexpr = hidden3.dtype.element_ty
    if wide != tl.float64:  # early, so that they arrive while the embeddings do
        within = tl.arange(0, middle)
        tile = _tile(weight3, tl.arange(0, top), within, width3, width2, width2, 1)
        found = _columns(hidden2, row, inside, within[None, :], width2)
    tl.atomic_add(by_last_bias, tl.sum(tl.sum(score, 1), 0).to(by_last_bias.dtype.element_ty), sem="relaxed")

    at = tl.arange(0, block)[None, :]
    there = inside & (at < factors)
    of_user, of_item = _factors(mf_user, mf_item, user, item, inside, at, factors)
    share = tl.load(output + at, mask=at < factors, other=0).to(wide)
    slope = (score * share).to(kind).to(of_user.dtype)
    tl.atomic_add(by_mf_user + user * factors + at, slope * of_item, mask=there, sem="relaxed")
    tl.atomic_add(by_mf_item + item * factors + at, slope * of_user, mask=there, sem="relaxed")
    _add_rows(by_output + at, score * (of_user * of_item).to(kind).to(wide), at < factors)

    at = tl.arange(0, top)[None, :]
    there = inside & (at < width3)
    last = tl.load(hidden3 + row * width3 + at, mask=there, other=0)
    share = tl.load(output + factors + at, mask=at < width3, other=0).to(wide)
    slope = tl.where(last > 0, score * share, 0).to(kind)
    tl.store(slopes3 + row * width3 + at, slope, mask=there)
    _add_rows(by_output + factors + at, score * last.to(wide), at < width3)
    _add_rows(by_bias3 + at, slope.to(wide), at < width3)

    if wide == tl.float64:
        tl.debug_barrier()
        _slopes(
            slopes3, weight3, hidden2, slopes2, by_bias2, row, inside, width3, width2,
            wide, rows, across, depth
        )  # fmt: skip
        _slopes(
            slopes2, weight2, hidden1, slopes1, by_bias1, row, inside, width2, width1,
            wide, rows, across, depth
        )  # fmt: skip
        for first in tl.static_range(0, 2 * half, across):
            column = first + tl.arange(0, across)[None, :]
            total = _product(
                slopes1, weight1, row, inside, first, width1, 2 * half, 2 * half, 1, wide, rows, across, depth
            )
            target = _joined(by_mlp_user, by_mlp_item, user, item, column, half)
            tl.atomic_add(target, total, mask=inside & (column < 2 * half), sem="relaxed")
    else:
        total = tl.dot(slope, tile, out_dtype=wide)
        above = _relu_gradient(total, found, slopes2, by_bias2, row, inside, within[None, :], width2)
        at = tl.arange(0, joined)
        total = tl.zeros((rows, joined), wide)
        for first in range(0, width1, across):
            column = first + tl.arange(0, across)
            lit = _columns(hidden1, row, inside, column[None, :], width1)
            part = tl.dot(above, _tile(weight2, within, column, width2, width1, width1, 1), out_dtype=wide)
            part = _relu_gradient(part, lit, slopes1, by_bias1, row, inside, column[None, :], width1)
            total = tl.dot(part, _tile(weight1, column, at, width1, 2 * half, 2 * half, 1), total)
        user = tl.load(users + start + row, mask=inside, other=0)  # again: they take many registers
        item = tl.load(items + start + row, mask=inside, other=0)
        at = tl.arange(0, joined)[None, :]
        target = _joined(by_mlp_user, by_mlp_item, user, item, at, half)
        total = total.to(kind).to(by_mlp_user.dtype.element_ty)
        tl.atomic_add(target, total, mask=inside & (at < 2 * half), sem="relaxed")


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, kind: torch.dtype, *weights: Tensor) -> Tensor:
        tables, layers = weights[:4], [weight.to(kind) for weight in weights[4:]]
        widths = [2 * tables[2].shape[1], *(len(bias) for bias in layers[1 : 2 * LAYERS : 2])]
        kept = [layers[0].new_empty(len(users), width) for width in widths]
        scores = tables[0].new_empty(len(users))
        grid, settings = _settings(FORWARD, tables[0].shape[1], kept)
        _forward[grid](users, items, *tables, *layers, *kept, scores, len(users), **settings)
        ctx.save_for_backward(users, items, *tables[:2], *layers, *kept)
        ctx.shapes = [weight.shape for weight in weights]
        return scores

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, given: Tensor) -> Any:
        users, items, *saved = ctx.saved_tensors
        tables, layers, kept = saved[:2], saved[2:-4], saved[-4:]
        # Those that the kernel adds up: of the tables, the biases and the output layer.
        added = [*range(4), *range(5, 4 + 2 * LAYERS, 2), -2, -1]
        shapes = [ctx.shapes[at] for at in added]
        flat = tables[0].new_zeros(sum(shape.numel() for shape in shapes))
        parts = flat.split([shape.numel() for shape in shapes])
        sums = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        matrices, hidden = layers[0 : 2 * LAYERS : 2], kept[1:]
        slopes = [torch.empty_like(one) for one in hidden]
        grid, settings = _settings(BACKWARD, tables[0].shape[1], kept)
        _backward[grid](
            users, items, *tables, *matrices, layers[-2], *hidden, given.contiguous(), *slopes, *sums,
            len(users), **settings, **_whole(kept)
        )  # fmt: skip
        found = sums[:4]
        for slope, source, bias in zip(slopes, kept, sums[4:], strict=False):
            found += [(slope.t() @ source).to(bias.dtype), bias]
        return None, None, None, *found, *sums[-2:]


def _settings(
    constants: Sequence[int], factors: int, kept: Sequence[Tensor]
) -> tuple[tuple[int], dict[str, Any]]:
    """The grid of a kernel with these constants and its compile-time arguments."""
    exact = kept[0].dtype == torch.float64
    rows, across, depth, warps, stages = EXACT if exact else constants
    both, *widths = (one.shape[1] for one in kept)
    return (triton.cdiv(len(kept[0]), rows),), {
        "factors": factors,
        "half": both // 2,
        **{f"width{at}": width for at, width in enumerate(widths, 1)},
        "wide": tl.float64 if exact else tl.float32,
        "block": _block(factors),
        "top": _block(widths[2]),
        "rows": rows,
        "across": min(across, _block(max(both, *widths))),
        "depth": min(depth, _block(min(both // 2, *widths))),
        "num_warps": warps,
        "num_stages": stages,
    }


def _whole(kept: Sequence[Tensor]) -> dict[str, int]:
    """Further compile-time arguments of :func:`_backward`: blocks of all inputs and of all of layer 2."""
    return {"joined": _block(kept[0].shape[1]), "middle": _block(kept[2].shape[1])}


def _inference_settings(weights: Sequence[Tensor]) -> dict[str, Any]:
    """The compile-time arguments of :func:`_infer`."""
    rows, across, _, warps, stages = INFER
    half = weights[2].shape[1]
    widths = [len(bias) for bias in weights[5 : 4 + 2 * LAYERS : 2]]
    return {
        "factors": weights[0].shape[1],
        "half": half,
        **{f"width{at}": width for at, width in enumerate(widths, 1)},
        "block": _block(weights[0].shape[1]),
        "joined": _block(2 * half),
        "middle": _block(widths[1]),
        "top": _block(widths[2]),
        "rows": rows,
        "across": min(across, _block(widths[0])),
        "num_warps": warps,
        "num_stages": stages,
    }


def _block(width: int) -> int:
    size: int = triton.next_power_of_2(width)
    return max(16, size)


def scores(users: Tensor, items: Tensor, weights: Sequence[Tensor], kind: torch.dtype) -> Tensor:
    """Scores before the sigmoid [n], in the type of the tables, for users [n] and items [n].

    ``weights``: the tables of the product (user, item) and of the MLP, then weight and bias of the MLP's
    three layers and of the output layer. Products are in ``kind``, of half precision or float64, sums in
    float32 or float64. ValueError for another number of layers.
    """
    expected = 4 + 2 * LAYERS + 2
    if len(weights) != expected:
        raise ValueError(f"expected {expected} weights of {LAYERS} layers, found {len(weights)}")
    result: Tensor = _Scores.apply(users, items, kind, *weights)  # type: ignore[no-untyped-call]
    return result


def sigmoids(users: Tensor, items: Tensor, weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The sigmoids [n] of the scores, in ``dtype``, for users [n] and items [n], without a gradient.

    ``weights`` as those of :func:`scores`, all in one half precision, in which the products are; sums are in
    float32.
    """
    found = weights[0].new_empty(len(users), dtype=dtype)
    _infer[triton.cdiv(len(users), INFER[0]),](
        users, items, *weights, found, len(users), **_inference_settings(weights)
    )
    return found
