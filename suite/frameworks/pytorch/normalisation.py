"""Batch normalisation in training, with its sums in Triton kernels, on a GPU.

``torch.compile`` fuses the pointwise part with what is around and reaches the speed of memory; its sums over
batch and positions do not. They are operators here, which the compiler calls as they are. Where a ReLU
follows, the gradient finds from the input again where it is zero, instead of reading the ReLU's output.
The formulas are those of Ioffe and Szegedy, "Batch Normalization", ICML 2015.

Registering :func:`normalise` looks for Triton: only builds of PyTorch for CUDA import this module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("suite::batch_moments", mutates_args=())
def _moments(x: Tensor, like: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / sqrt(variance + epsilon) of each channel of ``x`` [N, C, H, W], in ``like``'s type."""
    from suite.frameworks.pytorch import normalisation_kernels

    mean, inverse = _empty_moments(x, like, epsilon)
    normalisation_kernels.moments(_rows(x), mean, inverse, epsilon)
    return mean, inverse


@_moments.register_fake
def _empty_moments(x: Tensor, like: Tensor, _: float) -> tuple[Tensor, Tensor]:
    return like.new_empty(x.shape[1]), like.new_empty(x.shape[1])


@torch.library.custom_op("suite::batch_norm_gradients", mutates_args=())
def _gradients(
    slopes: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gamma: Tensor, beta: Tensor, relu: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of gamma and beta: sum(slope * normalised x) and sum(slope), each [C]."""
    from suite.frameworks.pytorch import normalisation_kernels

    written = torch.empty_like(mean), torch.empty_like(mean)
    normalisation_kernels.gradients(
        _rows(slopes), _rows(x), (mean, inverse), (gamma.contiguous(), beta.contiguous()), relu, written
    )
    return written


@_gradients.register_fake
def _empty_gradients(_slopes: Tensor, _x: Tensor, mean: Tensor, *_: Tensor | bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(mean), torch.empty_like(mean)


def _rows(x: Tensor) -> Tensor:
    """``x`` [N, C, H, W] as [N * H * W, C] with adjacent channels: a view, also of a part of the channels."""
    try:
        rows = x.permute(0, 2, 3, 1).view(-1, x.shape[1])
    except RuntimeError:  # other layouts
        rows = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _spread(channels: Tensor) -> Tensor:
    return channels[:, None, None]


@torch.library.triton_op("suite::batch_norm", mutates_args=())
def normalise(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """``x`` [N, C, H, W] normalised by its own statistics, the mean, and 1 / sqrt(variance + epsilon).

    With ``relu`` the first is max(normalised, 0). It computes in the type of ``gamma`` and ``beta`` [C]. Only
    the first has a gradient. The compiler sees what is within: a ``triton_op``, although it needs no kernel.
    """
    mean, inverse = _moments(x, gamma, epsilon)
    y = (x.to(gamma.dtype) - _spread(mean)) * _spread(inverse * gamma) + _spread(beta)
    return (y.relu() if relu else y).to(x.dtype), mean, inverse


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, gamma, beta, _, ctx.relu = inputs
    ctx.save_for_backward(x, gamma, beta, *output[1:])


def _differentiate(ctx: Any, slopes: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
    x, gamma, beta, mean, inverse = ctx.saved_tensors
    of_gamma, of_beta = _gradients(slopes, x, mean, inverse, gamma, beta, ctx.relu)
    apart, scale = x.to(gamma.dtype) - _spread(mean), inverse * gamma
    wide = slopes.to(gamma.dtype)
    if ctx.relu:  # as in the kernel
        wide = torch.where(apart * _spread(scale) + _spread(beta) <= 0, 0, wide)
    count = x.numel() // x.shape[1]
    within = _spread(of_beta / count) + apart * _spread(inverse * of_gamma / count)
    return (_spread(scale) * (wide - within)).to(x.dtype), of_gamma, of_beta, None, None


normalise.register_autograd(_differentiate, setup_context=_keep)
