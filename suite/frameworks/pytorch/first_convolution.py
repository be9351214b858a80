"""The first convolution of images, and the gradient of its weight, in Triton kernels, on a GPU.

Images have few channels, so that cuDNN's kernels compute both at a small part of the GPU's speed. The images
need no gradient. Both are operators, which the compiler calls as they are.

Registering the operators looks for Triton: only builds of PyTorch for CUDA import this module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

FITS = 8, 0  # the first compute capability whose multiprocessors have the 96 KiB that a program needs


def _fits(tensor: Tensor) -> bool:
    return not tensor.is_cuda or torch.cuda.get_device_capability(tensor.device) >= FITS


@torch.library.custom_op("suite::first_convolution_gradient", mutates_args=())
def _gradient(slopes: Tensor, image: Tensor) -> Tensor:
    """The gradient of the weight [outputs, C, down, across], in the channels-last layout."""
    from suite.frameworks.pytorch import first_convolution_kernels

    gradient = _empty_gradient(slopes, image)
    if not _fits(image):
        settings = [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
        plain = torch.ops.aten.convolution_backward(slopes, image, gradient, None, *settings)
        return gradient.copy_(plain[1])
    rows = [tensor.permute(0, 2, 3, 1).contiguous() for tensor in (slopes, image)]
    first_convolution_kernels.weight_gradient(rows[0], rows[1], gradient.permute(0, 2, 3, 1))
    return gradient


@_gradient.register_fake
def _empty_gradient(slopes: Tensor, image: Tensor) -> Tensor:
    down, across = (image.shape[side] - slopes.shape[side] + 1 for side in (2, 3))
    return slopes.new_empty(slopes.shape[1], down, across, image.shape[1]).permute(0, 3, 1, 2)


@torch.library.custom_op("suite::first_convolution", mutates_args=())
def convolve_images(image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.conv2d`` of ``image`` [N, C, H, W] and ``weight`` [outputs, C, height, width], half or float64.

    Only ``weight`` and ``bias`` [outputs] have gradients. All are of one type; autocast does not change it.
    """
    from suite.frameworks.pytorch import first_convolution_kernels

    if not (_fits(image) and first_convolution_kernels.convolves(weight)):
        return F.conv2d(image, weight, bias).contiguous(memory_format=torch.channels_last)
    result = _empty_result(image, weight, bias)
    rows = [tensor.permute(0, 2, 3, 1).contiguous() for tensor in (image, weight)]
    first_convolution_kernels.convolve(rows[0], rows[1], bias, result.permute(0, 2, 3, 1))
    return result


@convolve_images.register_fake
def _empty_result(image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ARG001
    height, width = (image.shape[side] - weight.shape[side] + 1 for side in (2, 3))
    return image.new_empty(image.shape[0], height, width, weight.shape[0]).permute(0, 3, 1, 2)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:  # noqa: ARG001
    image, _, bias = inputs
    ctx.save_for_backward(image)
    ctx.biased = bias is not None


def _differentiate(ctx: Any, slopes: Tensor) -> tuple[None, Tensor, Tensor | None]:
    (image,) = ctx.saved_tensors
    # Where a layout must change, the compiler does it in the kernel that makes the slopes.
    slopes = slopes.contiguous(memory_format=torch.channels_last)
    return None, _gradient(slopes, image), slopes.sum((0, 2, 3)) if ctx.biased else None


convolve_images.register_autograd(_differentiate, setup_context=_keep)
