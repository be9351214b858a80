"""Several LSTM layers of one width in Triton: in each wave every layer computes one step (a wavefront).

Layer l computes step t while layer l + 1 computes step t - 2: T + 2L - 2 waves in each direction, for T
steps and L layers. The formulas are those of ``torch.nn.LSTM``, with the gates i, f, g, o. One launch
computes all waves of a direction where the device can run all programs at once; elsewhere each is a launch.

There are 2L weight matrices [4H, H]: number 2l is that of layer l's input, 2l + 1 that of its hidden state.
One product multiplies number 0 for all steps. A wave multiplies each of the others for one step; the product
with a layer's input is made one wave before its layer needs it.
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

from suite.frameworks.pytorch import stacked_lstm_kernels as kernels
from suite.frameworks.pytorch.stacked_lstm_weights import pack, unpack

UNITS = 16  # hidden units of a program
DEPTH = 64  # of a block of a product; P is a multiple of it
ROWS = 64  # of the batch in a program, at most
FEWER_ROWS = 32  # where a program may have 99 KiB of shared memory instead of 163 or 227, or holds weights
LARGE = ((8, 0), (9, 0), (10, 0), (10, 3))  # capabilities of the others (CUDA C++ Programming Guide)
WARPS = 4
STAGES = 4  # blocks that are loaded ahead, plus one
EXACT_DEPTH = 4  # in fp64, without tensor cores
HOLDING = ((9, 0),)  # capabilities where one launch may compute all waves: 227 KiB of shared memory suffice
HELD = 768  # P, at most, for that


def padded_width(width: int) -> int:
    """P for ``width``, H."""
    return -(-width // DEPTH) * DEPTH


def at_once(device: torch.device, programs: int) -> bool:
    """Whether ``device`` has a multiprocessor for each of ``programs`` that hold their weights."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) not in HOLDING:
        return False
    return programs <= torch.cuda.get_device_properties(device).multi_processor_count


class Stack:
    """Sizes and settings of the launches for ``inputs`` [T, B, H] and ``layers`` layers."""

    def __init__(self, inputs: Tensor, kind: torch.dtype, layers: int) -> None:
        self.steps, self.batch, self.width = inputs.shape
        self.layers, self.kind = layers, kind
        exact = kind == torch.float64
        self.wide = kind if exact else torch.float32
        self.padded = padded_width(self.width)
        large = not inputs.is_cuda or torch.cuda.get_device_capability(inputs.device) in LARGE
        most = ROWS if large else FEWER_ROWS
        rows = 16 if exact else min(most, max(16, triton.next_power_of_2(self.batch)))
        tiles, matrices = -(-self.width // UNITS), 2 * layers - 1
        self.one_launch = (
            not exact
            and self.padded <= HELD
            and self.batch <= FEWER_ROWS
            and at_once(inputs.device, tiles * matrices)
        )
        if self.one_launch:
            rows = FEWER_ROWS
        self.grid = (tiles, matrices, -(-self.batch // rows))
        self.hold = self.one_launch  # tests set it where each wave is a launch
        self.settings = {
            "width": self.width,
            "padded": self.padded,
            "wide": tl.float64 if exact else tl.float32,
            "rows": rows,
            "units": UNITS,
            "depth": EXACT_DEPTH if exact else DEPTH,
            "num_warps": WARPS,
        }

    def run(self, wave_kernel: Any, kernel_of_all: Any, *arguments: Any, **constants: Any) -> None:
        """Compute all waves of one direction by the one kernel or the other."""
        waves = self.steps + 2 * self.layers - 2
        # The kernels themselves order the loads beside held weights.
        settings = self.settings | {"num_stages": 1 if self.hold else STAGES}
        if not self.one_launch:
            for wave in range(waves):
                wave_kernel[self.grid](wave, *arguments, hold=self.hold, **constants, **settings)
            return
        # The programs wait for each other. A cooperative launch starts none of them before all have room, and
        # fails if they can never have it. Each launch counts from zero, also in a replay of a captured graph.
        counter = arguments[0].new_zeros(1, dtype=torch.int32)
        settings["launch_cooperative_grid"] = True
        kernel_of_all[self.grid](waves, counter, *arguments, **constants, **settings)


def _matrices(weights: Sequence[Tensor]) -> list[Tensor]:
    """``weights`` without the biases: each layer has two matrices and one bias."""
    return [weight for at, weight in enumerate(weights) if at % 3 < 2]


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, state: Tensor, masks: Tensor | None, keep: bool, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        layers, kind = state.shape[0], state.dtype
        stack = Stack(inputs, kind, layers)
        steps, batch, width, padded = stack.steps, stack.batch, stack.width, stack.padded
        packed, turned = pack(_matrices(weights), padded, kind, keep)
        biases = torch.stack([bias.view(4, width).t() for bias in weights[2::3]]).to(stack.wide)
        states = state.new_zeros(2 * layers + 1, steps + 1, batch, padded)
        states[0, :steps, :, :width] = inputs
        states[1::2, 0, :, :width] = state[:, 0, 0]
        cells = state.new_empty(layers, steps + 1, batch, padded, dtype=stack.wide)
        cells[:, 0, :, :width] = state[:, 1, 0]
        first = states[0, :steps].flatten(0, 1) @ packed[0].t()
        later = state.new_empty(max(layers - 1, 1), steps, batch, 4 * padded, dtype=stack.wide)
        gates = state.new_empty(layers, steps, batch, 4 * padded) if keep else states
        stack.run(
            kernels.forward, kernels.forward_all,
            packed, biases, first, later, states if masks is None else masks, states, cells, gates,
            steps, batch, masked=masks is not None, keep=keep
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
        stack.run(
            kernels.backward, kernels.backward_all,
            turned, states if masks is None else masks, cells, gates, given, passed, slopes, carried,
            layers, steps, batch, masked=masks is not None
        )  # fmt: skip
        rows = slopes[:, :steps].reshape(layers, steps * batch, 4 * padded)
        sources = states[: 2 * layers, :steps].flatten(1, 2)
        even, odd = (torch.bmm(rows.transpose(1, 2), sources[at::2]) for at in (0, 1))
        matrices = unpack(even, odd, _matrices(weights))
        sums = rows.sum(dim=1, dtype=stack.wide).view(layers, padded, 4)[:, : stack.width]
        found: list[Tensor] = []
        for layer in range(layers):
            bias = sums[layer].t().reshape(-1).to(weights[3 * layer + 2].dtype)
            found += [*matrices[2 * layer : 2 * layer + 2], bias]
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
