"""Max pooling whose gradient is a sum over the windows of each pixel, on a GPU.

The gradient that ``torch.compile`` makes of ``F.max_pool2d`` takes about eight times as long as its memory
traffic (H100). These are operators of PyTorch, so that the compiler calls them as they are; their kernels are
Triton's, which only CUDA builds have, and which are imported when an operator first runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from suite.common.layers import windows

LARGEST = 15  # rows of a window: its pixels are counted in a byte


def max_pool(x: Tensor, kernel: int, stride: int, padding: int = 0, ceil: bool = False) -> Tensor:
    """``F.max_pool2d`` of ``x`` [N, C, H, W], on a GPU with a faster gradient.

    The gradient of a window goes to its first maximum. Without a gradient the compiler's own code, which it
    fuses with the layers around, is as good.
    """
    if x.is_cuda and x.requires_grad and kernel <= LARGEST:
        return with_index(x, kernel, stride, padding, ceil)[0]
    return F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)


@torch.library.custom_op("suite::max_pool", mutates_args=())
def with_index(x: Tensor, kernel: int, stride: int, padding: int, ceil: bool) -> tuple[Tensor, Tensor]:
    """The maxima, and the place of each in its window, row by row, in uint8; both in channels-last layout."""
    from suite.frameworks.pytorch import pooling_kernels

    maxima, index = _empty(x, kernel, stride, padding, ceil)
    x = x.contiguous(memory_format=torch.channels_last)
    pooling_kernels.forward(x, maxima, index, kernel, stride, padding)
    return maxima, index


@with_index.register_fake
def _empty(x: Tensor, kernel: int, stride: int, padding: int, ceil: bool) -> tuple[Tensor, Tensor]:
    shape = *x.shape[:2], *(windows(side, kernel, stride, padding, ceil) for side in x.shape[2:])
    maxima, index = (
        torch.empty(shape, dtype=dtype, device=x.device, memory_format=torch.channels_last)
        for dtype in (x.dtype, torch.uint8)
    )
    return maxima, index


@torch.library.custom_op("suite::max_pool_gradient", mutates_args=())
def _gradient(
    slopes: Tensor, index: Tensor, height: int, width: int, kernel: int, stride: int, padding: int
) -> Tensor:
    from suite.frameworks.pytorch import pooling_kernels

    gradient = _empty_gradient(slopes, index, height, width, kernel, stride, padding)
    slopes = slopes.contiguous(memory_format=torch.channels_last)
    pooling_kernels.backward(slopes, index, gradient, kernel, stride, padding)
    return gradient


@_gradient.register_fake
def _empty_gradient(slopes: Tensor, _: Tensor, height: int, width: int, *_window: int) -> Tensor:
    shape = *slopes.shape[:2], height, width
    return torch.empty(shape, dtype=slopes.dtype, device=slopes.device, memory_format=torch.channels_last)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, kernel, stride, padding, _ = inputs
    ctx.save_for_backward(output[1])
    ctx.sizes = *x.shape[2:], kernel, stride, padding


def _differentiate(ctx: Any, slopes: Tensor, _: Any) -> tuple[Tensor, None, None, None, None]:
    (index,) = ctx.saved_tensors
    return _gradient(slopes, index, *ctx.sizes), None, None, None, None


with_index.register_autograd(_differentiate, setup_context=_keep)
