"""Convolutions of inference that cuDNN computes together with the ReLU behind them, and the sum before it.

``torch.compile`` leaves a convolution to cuDNN and makes a kernel of its own of what follows, which reads and
writes the whole output again. These are operators, so that the compiler calls them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from suite.common.layers import windows


@torch.library.custom_op("suite::convolve_relu", mutates_args=())
def convolve_relu(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: Sequence[int]) -> Tensor:
    """The ReLU of the convolution of ``x`` [N, C, H, W], channels last, with ``bias``."""
    return torch.cudnn_convolution_relu(x, weight, bias, [stride] * 2, padding, [1, 1], 1)


@torch.library.custom_op("suite::convolve_add_relu", mutates_args=())
def convolve_add_relu(
    x: Tensor, other: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: Sequence[int]
) -> Tensor:
    """The ReLU of the sum of ``other`` and the convolution of ``x`` with ``bias``."""
    return torch.cudnn_convolution_add_relu(x, weight, other, 1.0, bias, [stride] * 2, padding, [1, 1], 1)


@convolve_relu.register_fake
def _empty(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: Sequence[int]) -> Tensor:
    del bias
    sides = zip(x.shape[2:], weight.shape[2:], padding, strict=True)
    shape = len(x), len(weight), *(windows(side, kernel, stride, edge, False) for side, kernel, edge in sides)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


@convolve_add_relu.register_fake
def _empty_sum(
    x: Tensor, other: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: Sequence[int]
) -> Tensor:
    del other
    return _empty(x, weight, bias, stride, padding)
