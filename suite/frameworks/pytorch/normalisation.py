"""Batch normalisation in training, with its sums in Triton kernels, on a GPU.

``torch.compile`` fuses the pointwise part with what is around and reaches the speed of memory; its sums over
batch and positions do not. They are operators here, which the compiler calls as they are. Where a ReLU
follows, the gradient finds from the input again where it is zero, instead of reading the ReLU's output.
The end of a residual block, with its addition and ReLU, is one operator: the kernel of the sums also computes
the gradient of the ReLU's input, which otherwise one kernel writes and the next reads. The formulas are those
of Ioffe and Szegedy, "Batch Normalization", ICML 2015.

Registering the operators looks for Triton: only builds of PyTorch for CUDA import this module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("suite::batch_moments", mutates_args=())
def _moments(x: Tensor, like: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, biased variance and 1 / sqrt(variance + epsilon) of the channels of ``x`` [N, C, H, W].

    They have the type of ``like``.
    """
    from suite.frameworks.pytorch import normalisation_kernels

    written = _empty_moments(x, like, epsilon)
    normalisation_kernels.moments(_rows(x), written, epsilon)
    return written


@_moments.register_fake
def _empty_moments(x: Tensor, like: Tensor, _: float) -> tuple[Tensor, Tensor, Tensor]:
    channels = x.shape[1]
    return like.new_empty(channels), like.new_empty(channels), like.new_empty(channels)


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


@torch.library.custom_op("suite::batch_norm_gradients_of_sum", mutates_args=())
def _gradients_of_sum(
    slopes: Tensor, others: Tensor, y: Tensor, x: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of total, gamma and beta, where y = max(total, 0) and total = normalised x + shortcut.

    The gradient of ``y`` is ``slopes + others``.
    """
    from suite.frameworks.pytorch import normalisation_kernels

    of_total, of_gamma, of_beta = _empty_gradients_of_sum(slopes, others, y, x, mean, inverse)
    one, both = (_rows(x), (mean, inverse), (of_gamma, of_beta)), (_rows(slopes), _rows(others))
    normalisation_kernels.gradients_of_sum(both, _rows(y), one, None, _rows(of_total))
    return of_total, of_gamma, of_beta


@_gradients_of_sum.register_fake
def _empty_gradients_of_sum(
    _slopes: Tensor, _others: Tensor, y: Tensor, _x: Tensor, mean: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    count, channels, height, width = y.shape
    # In the channels-last layout whatever that of y is: the kernel writes rows without gaps.
    of_total = y.new_empty(count, height, width, channels).permute(0, 3, 1, 2)
    return of_total, torch.empty_like(mean), torch.empty_like(mean)


@torch.library.custom_op("suite::batch_norm_gradients_of_both", mutates_args=())
def _gradients_of_both(
    slopes: Tensor, others: Tensor, y: Tensor,
    x: Tensor, mean: Tensor, inverse: Tensor, x2: Tensor, mean2: Tensor, inverse2: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """As :func:`_gradients_of_sum`, where the shortcut is normalised x2; last those of gamma2 and beta2."""
    from suite.frameworks.pytorch import normalisation_kernels

    of_total, *written = _empty_gradients_of_both(slopes, others, y, x, mean, inverse, x2, mean2, inverse2)
    of_gamma, of_beta, of_gamma2, of_beta2 = written
    one, both = (_rows(x), (mean, inverse), (of_gamma, of_beta)), (_rows(slopes), _rows(others))
    two = _rows(x2), (mean2, inverse2), (of_gamma2, of_beta2)
    normalisation_kernels.gradients_of_sum(both, _rows(y), one, two, _rows(of_total))
    return of_total, of_gamma, of_beta, of_gamma2, of_beta2


@_gradients_of_both.register_fake
def _empty_gradients_of_both(
    slopes: Tensor, others: Tensor, y: Tensor, x: Tensor, mean: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    first = _empty_gradients_of_sum(slopes, others, y, x, mean)
    return *first, torch.empty_like(mean), torch.empty_like(mean)


def _rows(x: Tensor) -> Tensor:
    """``x`` [N, C, H, W] as [N * H * W, C] with adjacent channels: a view, also of a part of the channels."""
    try:
        rows = x.permute(0, 2, 3, 1).view(-1, x.shape[1])
    except RuntimeError:  # other layouts
        rows = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _spread(channels: Tensor) -> Tensor:
    return channels[:, None, None]


def _normalised(x: Tensor, mean: Tensor, inverse: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return (x.to(gamma.dtype) - _spread(mean)) * _spread(inverse * gamma) + _spread(beta)


def _gradient_of_x(
    wide: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gamma: Tensor, sums: tuple[Tensor, Tensor]
) -> Tensor:
    """From the gradient ``wide`` of the normalised ``x``, and ``sums``, the gradients of gamma and beta."""
    of_gamma, of_beta = sums
    count = x.numel() // x.shape[1]
    apart = x.to(gamma.dtype) - _spread(mean)
    within = _spread(of_beta / count) + apart * _spread(inverse * of_gamma / count)
    return (_spread(inverse * gamma) * (wide - within)).to(x.dtype)


@torch.library.triton_op("suite::batch_norm", mutates_args=())
def normalise(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``x`` [N, C, H, W] normalised by its own statistics, and the statistics, as :func:`_moments` has them.

    With ``relu`` the first is max(normalised, 0). It computes in the type of ``gamma`` and ``beta`` [C]. Only
    the first has a gradient. The compiler sees what is within: a ``triton_op``, although it needs no kernel.
    """
    mean, variance, inverse = _moments(x, gamma, epsilon)
    y = _normalised(x, mean, inverse, gamma, beta)
    return (y.relu() if relu else y).to(x.dtype), mean, variance, inverse


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, gamma, beta, _, ctx.relu = inputs
    _, mean, _, inverse = output
    ctx.save_for_backward(x, gamma, beta, mean, inverse)


def _differentiate(ctx: Any, slopes: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
    x, gamma, beta, mean, inverse = ctx.saved_tensors
    sums = _gradients(slopes, x, mean, inverse, gamma, beta, ctx.relu)
    wide = slopes.to(gamma.dtype)
    if ctx.relu:  # as in the kernel
        wide = torch.where(_normalised(x, mean, inverse, gamma, beta) <= 0, 0, wide)
    return _gradient_of_x(wide, x, mean, inverse, gamma, sums), *sums, None, None


normalise.register_autograd(_differentiate, setup_context=_keep)


@torch.library.triton_op("suite::batch_norm_and_add", mutates_args=())
def normalise_and_add(
    x: Tensor, shortcut: Tensor, gamma: Tensor, beta: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output max(normalised x + shortcut, 0), a copy of it, and the statistics of ``x``.

    As :func:`normalise`, but the first two have gradients. It is for an output of two uses, of which one
    takes the copy: then the kernel of the sums adds the two gradients, which for autograd is one more pass.
    The compiler finds that nothing needs the copy and makes none.
    """
    mean, variance, inverse = _moments(x, gamma, epsilon)
    total = _normalised(x, mean, inverse, gamma, beta) + shortcut.to(gamma.dtype)
    y = total.relu().to(x.dtype)
    return y, y.clone(), mean, variance, inverse


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, shortcut, gamma, _, _ = inputs
    y, _, mean, _, inverse = output
    ctx.save_for_backward(x, y, gamma, mean, inverse)
    ctx.shortcut_type = shortcut.dtype


def _differentiate_sum(
    ctx: Any, slopes: Tensor, others: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
    x, y, gamma, mean, inverse = ctx.saved_tensors
    # Where a layout must change, the compiler does it in the kernel that makes the slopes.
    slopes = slopes.contiguous(memory_format=torch.channels_last)
    others = others.contiguous(memory_format=torch.channels_last)
    of_total, *sums = _gradients_of_sum(slopes, others, y, x, mean, inverse)
    of_x = _gradient_of_x(of_total.to(gamma.dtype), x, mean, inverse, gamma, (sums[0], sums[1]))
    return of_x, of_total.to(ctx.shortcut_type), sums[0], sums[1], None


normalise_and_add.register_autograd(_differentiate_sum, setup_context=_keep_sum)


@torch.library.triton_op("suite::batch_norms_and_add", mutates_args=())
def normalise_both_and_add(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float,
    x2: Tensor, gamma2: Tensor, beta2: Tensor, epsilon2: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The output max(normalised x + normalised x2, 0), a copy of it, and the statistics of ``x`` and ``x2``.

    As :func:`normalise_and_add` of a normalised shortcut, whose sums the same kernel finds.
    """
    mean, variance, inverse = _moments(x, gamma, epsilon)
    mean2, variance2, inverse2 = _moments(x2, gamma2, epsilon2)
    total = _normalised(x, mean, inverse, gamma, beta) + _normalised(x2, mean2, inverse2, gamma2, beta2)
    y = total.relu().to(x.dtype)
    return y, y.clone(), mean, variance, inverse, mean2, variance2, inverse2


def _keep_both(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, gamma, _, _, x2, gamma2, *_ = inputs
    y, _, mean, _, inverse, mean2, _, inverse2 = output
    ctx.save_for_backward(y, x, mean, inverse, gamma, x2, mean2, inverse2, gamma2)


def _differentiate_both(ctx: Any, slopes: Tensor, others: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    y, x, mean, inverse, gamma, x2, mean2, inverse2, gamma2 = ctx.saved_tensors
    slopes = slopes.contiguous(memory_format=torch.channels_last)
    others = others.contiguous(memory_format=torch.channels_last)
    of_total, *found = _gradients_of_both(slopes, others, y, x, mean, inverse, x2, mean2, inverse2)
    wide = of_total.to(gamma.dtype)
    of_x = _gradient_of_x(wide, x, mean, inverse, gamma, (found[0], found[1]))
    of_x2 = _gradient_of_x(wide, x2, mean2, inverse2, gamma2, (found[2], found[3]))
    return of_x, found[0], found[1], None, of_x2, found[2], found[3], None


normalise_both_and_add.register_autograd(_differentiate_both, setup_context=_keep_both)
