"""Several LSTM layers of one width in Triton: in each launch every layer computes one step (a wavefront).

Layer l computes step t while layer l + 1 computes step t - 2: T + 2L - 2 launches in each direction, for T
steps and L layers. The formulas are those of ``torch.nn.LSTM``, with the gates i, f, g, o.

There are 2L weight matrices [4H, H]: number 2l is that of layer l's input, 2l + 1 that of its hidden state.
One product multiplies number 0 for all steps. A launch multiplies each of the others for one step; the
product with a layer's input is made one launch before its layer needs it.
All tensors have H padded to P, a multiple of ``DEPTH``, so that rows are aligned and loops need no masks:

- ``states`` [2L + 1, T + 1, B, P]: what matrix m multiplies at each step; number 2L is the output.
- ``gates`` [L, T, B, 4P] and their gradients ``slopes`` [L, T + 1, B, 4P]: the four gates of a unit lie
  side by side. ``cells`` [L, T + 1, B, P].
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

UNITS = 16  # hidden units of a program
DEPTH = 64  # of a block of a product; P is a multiple of it
ROWS = 64  # of the batch in a program, at most
FEWER_ROWS = 32  # where a program may have 99 KiB of shared memory instead of 163 or 227
LARGE = ((8, 0), (9, 0), (10, 0), (10, 3))  # capabilities of the others (CUDA C++ Programming Guide)
WARPS = 4
STAGES = 4  # blocks that are loaded ahead, plus one
EXACT_DEPTH = 4  # in fp64, without tensor cores


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _apart(gates, rows: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gates i, f, g and o of ``gates`` [rows, 4 units]."""
    ig, fo = tl.split(tl.reshape(gates, (rows, units, 2, 2)))
    i, g = tl.split(ig)
    f, o = tl.split(fo)
    return i, f, g, o


@triton.jit
def _together(i, f, g, o, rows: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """The opposite of :func:`_apart`."""
    return tl.reshape(tl.join(tl.join(i, g), tl.join(f, o)), (rows, 4 * units))


@triton.jit
def _pack(  # type: ignore[no-untyped-def]
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
def _tile(batch, width: tl.constexpr, rows: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of this program: rows of the batch, units and columns of gates; which rows, units and columns exist."""
    row = tl.program_id(2) * rows + tl.arange(0, rows)[:, None]
    unit = tl.program_id(0) * units + tl.arange(0, units)[None, :]
    column = tl.program_id(0) * (4 * units) + tl.arange(0, 4 * units)[None, :]
    present = row < batch
    return row, unit, column, present, present & (unit < width), present & (column < 4 * width)


@triton.jit(do_not_specialize=["launch"])
def _forward(  # type: ignore[no-untyped-def]
    launch, weights, biases, first, later, masks, states, cells, gates, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr, keep: tl.constexpr,
    wide: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """One launch forward; program (tile of units, matrix - 1, tile of rows).

    An odd matrix, of a hidden state, makes a step of its layer. The product of the layer's input is in
    ``first`` for layer 0, and in ``later`` for the others, where an even matrix writes it.
    """
    at_matrix = tl.program_id(1).to(tl.int64) + 1  # int64: a large batch has more elements than int32 counts
    layer = at_matrix // 2
    recurrent = at_matrix % 2 == 1
    step = launch + 1 - at_matrix
    if (step >= 0) & (step < steps):
        row, unit, column, present, inside, every = _tile(batch, width, rows, units)
        size = batch * padded  # of a step
        # These loads come before the products, which hide their latency.
        in_first = first + step * (4 * size) + row * (4 * padded) + column
        in_later = later + ((layer - 1) * steps + step) * (4 * size) + row * (4 * padded) + column
        from_first = tl.load(in_first, mask=every & (at_matrix == 1), other=0)
        from_later = tl.load(in_later, mask=every & recurrent & (layer > 0), other=0)
        bias = tl.load(biases + layer * (4 * width) + column, mask=(column < 4 * width) & recurrent, other=0)
        cell = cells + (layer * (steps + 1) + step) * size + row * padded + unit
        c = tl.load(cell, mask=inside & recurrent, other=0)
        if masked:
            mask = masks + ((layer * steps + step) * batch + row) * width + unit
            factor = tl.load(mask, mask=inside & recurrent, other=0)

        own = states + (at_matrix * (steps + 1) + step) * size + row * padded
        left = own + tl.arange(0, depth)[None, :]
        right = weights + at_matrix * (4 * padded * padded) + column * padded + tl.arange(0, depth)[:, None]
        total = tl.zeros((rows, 4 * units), wide)
        for k in range(0, padded, depth):
            a = tl.load(left + k, mask=present, other=0)
            total = add_product(total, a, tl.load(right + k))

        if recurrent:
            i, f, g, o = _apart(total + from_first.to(wide) + from_later + bias, rows, units)
            i = tl.sigmoid(i)
            f = tl.sigmoid(f)
            g = _tanh(g)
            o = tl.sigmoid(o)
            c = f * c + i * g
            tl.store(cell + size, c, mask=inside)
            h = o * _tanh(c)
            tl.store(own + size + unit, h.to(states.dtype.element_ty), mask=inside)
            if masked:
                h *= factor
            tl.store(own + (steps + 1) * size + unit, h.to(states.dtype.element_ty), mask=inside)
            if keep:
                kept = gates + (layer * steps + step) * (4 * size) + row * (4 * padded) + column
                value = _together(i, f, g, o, rows, units)
                tl.store(kept, value.to(gates.dtype.element_ty), mask=every)
        else:
            tl.store(in_later, total, mask=every)


@triton.jit(do_not_specialize=["launch"])
def _backward(  # type: ignore[no-untyped-def]
    launch, turned, masks, cells, gates, given, passed, slopes, carried, layers, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr,
    wide: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """One launch back in time; program (tile of units, 2 L - 1 - matrix, tile of rows).

    ``turned``: the weights, transposed. An odd matrix makes the slopes of its layer at a step from ``given``,
    the gradient of the output, or from ``passed`` [L - 1, T, B, P], which an even matrix writes for the layer
    below. ``carried`` [L, B, P] is the gradient of the cell, ``slopes`` are zero behind the last step.
    """
    turn = tl.program_id(1).to(tl.int64)  # int64: a large batch has more elements than int32 counts
    at_matrix = 2 * layers - 1 - turn
    layer = at_matrix // 2
    recurrent = at_matrix % 2 == 1
    step = steps - 1 - launch + turn
    if (step >= 0) & (step < steps):
        row, unit, column, present, inside, every = _tile(batch, width, rows, units)
        used = inside & recurrent
        size = batch * padded
        at_unit = row * padded + unit
        # These loads come before the products, which hide their latency.
        in_passed = passed + (layer * steps + step) * size + at_unit
        from_next = tl.load(in_passed, mask=used & (layer < layers - 1), other=0)
        from_given = tl.load(given + step * size + at_unit, mask=used & (layer == layers - 1), other=0)
        if masked:
            mask = masks + ((layer * steps + step) * batch + row) * width + unit
            factor = tl.load(mask, mask=used, other=0)
        kept = gates + (layer * steps + step) * (4 * size) + row * (4 * padded) + column
        activated = tl.load(kept, mask=every & recurrent, other=0)
        cell = cells + (layer * (steps + 1) + step) * size + at_unit
        before = tl.load(cell, mask=used, other=0)
        after = tl.load(cell + size, mask=used, other=0)
        carry = carried + layer * size + at_unit
        dc = tl.load(carry, mask=used, other=0)

        # The slopes of the next step for a hidden state, of this one for an input.
        own = slopes + (layer * (steps + 1) + step) * (4 * size) + row * (4 * padded)
        left = own + (at_matrix % 2) * (4 * size) + tl.arange(0, depth)[None, :]
        right = (
            turned + at_matrix * (4 * padded * padded) + unit * (4 * padded) + tl.arange(0, depth)[:, None]
        )
        # Four sums of a quarter: the additions of one wait for each other.
        s0 = tl.zeros((rows, units), wide)
        s1, s2, s3 = s0, s0, s0
        for k in range(0, padded, depth):
            a = tl.load(left + k, mask=present, other=0)
            s0 = add_product(s0, a, tl.load(right + k))
            a = tl.load(left + (padded + k), mask=present, other=0)
            s1 = add_product(s1, a, tl.load(right + (padded + k)))
            a = tl.load(left + (2 * padded + k), mask=present, other=0)
            s2 = add_product(s2, a, tl.load(right + (2 * padded + k)))
            a = tl.load(left + (3 * padded + k), mask=present, other=0)
            s3 = add_product(s3, a, tl.load(right + (3 * padded + k)))
        total = (s0 + s1) + (s2 + s3)

        if recurrent:
            i, f, g, o = _apart(activated.to(wide), rows, units)
            above = from_next + from_given
            if masked:
                above *= factor
            dh = total + above
            squashed = _tanh(after)
            dc += dh * o * (1 - squashed * squashed)
            tl.store(carry, dc * f, mask=inside)
            di, df = dc * g * i * (1 - i), dc * before * f * (1 - f)
            dg, do = dc * i * (1 - g * g), dh * squashed * o * (1 - o)
            value = _together(di, df, dg, do, rows, units)
            tl.store(own + column, value.to(slopes.dtype.element_ty), mask=every)
        else:
            tl.store(passed + ((layer - 1) * steps + step) * size + at_unit, total, mask=inside)


class _Stack:
    """Sizes and settings of the launches for ``inputs`` [T, B, H] and ``layers`` layers."""

    def __init__(self, inputs: Tensor, kind: torch.dtype, layers: int) -> None:
        self.steps, self.batch, self.width = inputs.shape
        self.layers, self.kind = layers, kind
        exact = kind == torch.float64
        self.wide = kind if exact else torch.float32
        self.padded = -(-self.width // DEPTH) * DEPTH
        large = not inputs.is_cuda or torch.cuda.get_device_capability(inputs.device) in LARGE
        most = ROWS if large else FEWER_ROWS
        rows = 16 if exact else min(most, max(16, triton.next_power_of_2(self.batch)))
        self.grid = (-(-self.width // UNITS), 2 * layers - 1, -(-self.batch // rows))
        self.settings = {
            "width": self.width,
            "padded": self.padded,
            "wide": tl.float64 if exact else tl.float32,
            "rows": rows,
            "units": UNITS,
            "depth": EXACT_DEPTH if exact else DEPTH,
            "num_warps": WARPS,
            "num_stages": STAGES,
        }

    def launches(self) -> range:
        """The numbers of the launches of one direction."""
        return range(self.steps + 2 * self.layers - 2)

    def pack(self, matrices: Sequence[Tensor], both: bool) -> tuple[Tensor, Tensor]:
        """The ``matrices`` in the type of the computation, [2 L, 4P, P], and [2 L, P, 4P] if ``both``."""
        shape = len(matrices), 4 * self.padded, self.padded
        packed = torch.empty(shape, dtype=self.kind, device=matrices[0].device)
        turned = packed.new_empty(shape[0], self.padded, 4 * self.padded) if both else packed
        grid = (4 * self.padded // DEPTH, self.padded // DEPTH)
        for at, matrix in enumerate(matrices):
            _pack[grid](
                matrix.contiguous(), packed[at], turned[at], self.width, self.padded, both, DEPTH
            )  # fmt: skip
        return packed, turned


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, state: Tensor, masks: Tensor | None, keep: bool, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        layers, kind = state.shape[0], state.dtype
        stack = _Stack(inputs, kind, layers)
        steps, batch, width, padded = stack.steps, stack.batch, stack.width, stack.padded
        matrices = [weight for at, weight in enumerate(weights) if at % 3 < 2]
        packed, turned = stack.pack(matrices, keep)
        biases = torch.stack([bias.view(4, width).t() for bias in weights[2::3]]).to(stack.wide)
        states = state.new_zeros(2 * layers + 1, steps + 1, batch, padded)
        states[0, :steps, :, :width] = inputs
        states[1::2, 0, :, :width] = state[:, 0, 0]
        cells = state.new_empty(layers, steps + 1, batch, padded, dtype=stack.wide)
        cells[:, 0, :, :width] = state[:, 1, 0]
        first = states[0, :steps].flatten(0, 1) @ packed[0].t()
        later = state.new_empty(max(layers - 1, 1), steps, batch, 4 * padded, dtype=stack.wide)
        gates = state.new_empty(layers, steps, batch, 4 * padded) if keep else states
        for launch in stack.launches():
            _forward[stack.grid](
                launch, packed, biases, first, later, states if masks is None else masks, states, cells,
                gates, steps, batch, masked=masks is not None, keep=keep, **stack.settings
            )  # fmt: skip
        if keep:
            ctx.save_for_backward(packed, turned, states, cells, gates, *weights)
            ctx.stack, ctx.masks, ctx.kind = stack, masks, inputs.dtype
        last = torch.stack((states[1::2, steps, :, :width], cells[:, steps, :, :width].to(kind)), dim=1)
        last = last.view_as(state)
        ctx.mark_non_differentiable(last)
        return states[2 * layers, :steps], last

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, given: Tensor, _: Tensor) -> Any:
        packed, turned, states, cells, gates, *weights = ctx.saved_tensors
        stack, masks = ctx.stack, ctx.masks
        layers, steps, batch, padded = stack.layers, stack.steps, stack.batch, stack.padded
        slopes = gates.new_zeros(layers, steps + 1, batch, 4 * padded)
        carried = cells.new_zeros(layers, batch, padded)
        passed = cells.new_empty(max(layers - 1, 1), steps, batch, padded)
        given = given.contiguous()
        for launch in stack.launches():
            _backward[stack.grid](
                launch, turned, states if masks is None else masks, cells, gates, given, passed, slopes,
                carried, layers, steps, batch, masked=masks is not None, **stack.settings
            )  # fmt: skip
        rows = slopes[:, :steps].reshape(layers, steps * batch, 4 * padded)
        sources = states[: 2 * layers, :steps].flatten(1, 2)
        found: list[Tensor] = []
        sums = rows.sum(dim=1, dtype=stack.wide).view(layers, padded, 4)[:, : stack.width]
        products = [torch.bmm(rows.transpose(1, 2), sources[at::2]) for at in (0, 1)]
        for layer in range(layers):
            for product, weight in zip(products, weights[3 * layer : 3 * layer + 2], strict=True):
                square = (
                    product[layer].view(padded, 4, padded)[: stack.width, :, : stack.width].transpose(0, 1)
                )
                found.append(torch.empty_like(weight).view(square.shape).copy_(square).view_as(weight))
            found.append(sums[layer].t().reshape(-1).to(weights[3 * layer + 2].dtype))
        down = (rows[0] @ packed[0]).view(steps, batch, padded)
        return down[..., : stack.width].to(ctx.kind), None, None, None, *found


def stacked_lstm(
    inputs: Tensor, state: Tensor, masks: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, P] of the last layer, zero behind H, and the last state, computed in ``state``'s type.

    ``inputs`` [T, B, H] and ``weights``, for each layer [4H, H], [4H, H] and [4H], may have another type.
    ``state`` [L, 2, 1, B, H], hidden and cell, is of half precision or float64 and gets no gradient.
    ``masks`` [L, T, B, H] are factors of each layer's outputs, as dropout's; only they pass the outputs on,
    not the hidden state. ValueError for other shapes of weights.
    """
    width = inputs.shape[2]
    shapes = [tuple(weight.shape) for weight in weights]
    expected = [(4 * width, width), (4 * width, width), (4 * width,)] * state.shape[0]
    if shapes != expected:
        raise ValueError(f"expected LSTM weights {expected}, found {shapes}")
    result: tuple[Tensor, Tensor] = _Layers.apply(  # type: ignore[no-untyped-call]
        inputs, state, masks, torch.is_grad_enabled(), *weights
    )
    return result
