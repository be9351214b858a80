"""First convolutions by Triton's kernels against PyTorch's, in Triton's interpreter.

``python -m tests.equivalence.first_convolutions FILE PACKAGES`` writes outputs and gradients, each under
``<case>/<part>/ours`` and ``<case>/<part>/plain``: of the operator in fp64 and fp16, and of the suite's
convolution of blocks in fp64, compiled and not, and of fp16 images with fp32 weights. Triton is imported
from the folder PACKAGES.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

# Of the image in blocks: N, C, height, width; outputs, and the kernel's sides. As in the suite's networks,
# and odd ones: rows of more pixels than a program loads, more columns and outputs than it has.
SHAPES = (
    ((1, 16, 6, 38), (64, 4, 4)),  # resnet50, googlenet
    ((1, 48, 6, 9), (64, 3, 3)),  # alexnet
    ((2, 16, 5, 7), (32, 2, 2)),  # inception_v3
    ((1, 8, 7, 36), (20, 3, 3)),  # vgg16
    ((3, 8, 1, 3), (72, 1, 3)),
)
# image sides; outputs, kernel, stride, padding: of three channels
CONVOLUTIONS = (
    ((12, 14), (16, (7, 7), 2, (3, 3))),  # resnet50, googlenet
    ((23, 20), (16, (11, 11), 4, (2, 2))),  # alexnet
    ((9, 8), (5, (3, 3), 1, (1, 1))),  # vgg16
)
PROGRAMS = 6  # at most, so that most of them loop
WIDE = 32  # more than on a GPU: fewer programs take less time

Outputs = Callable[..., Any]


def both(name: str, ours: Outputs, plain: Outputs, image: Any, weights: Sequence[Any]) -> dict[str, Any]:
    """The output of the two functions of ``image`` and ``weights``, and the gradients of these.

    ``ours`` gets them as they are, ``plain`` in fp64.
    """
    import torch

    found = {}
    for way, function in (("ours", ours), ("plain", plain)):
        wide = torch.Tensor.double if way == "plain" else torch.Tensor.detach
        given = [torch.nn.Parameter(wide(weight)) for weight in weights]
        output = function(wide(image), *given)
        generator = torch.Generator().manual_seed(1)
        slopes = torch.randn(output.shape, generator=generator, dtype=torch.float64)  # not channels-last
        slopes = slopes.to(image.dtype).to(output.dtype)
        gradients = torch.autograd.grad(output, given, slopes)
        if way == "ours":
            assert gradients[0].dtype == weights[0].dtype, name
        for part, value in enumerate((output, *gradients)):
            found[f"{name}/{part}/{way}"] = value.detach().double().numpy()
    return found


def drawn(image: Sequence[int], *weights: Sequence[int]) -> list[Any]:
    """Values of both signs, the image and weights of four dimensions in the channels-last layout."""
    import torch

    from suite.frameworks.pytorch.layers import stored

    generator = torch.Generator().manual_seed(0)
    return [
        stored(torch.randn(*shape, generator=generator, dtype=torch.float64)) for shape in (image, *weights)
    ]


def of_operator() -> Iterator[dict[str, Any]]:
    """Every shape in fp64 and in fp16: the interpreter has no products of bfloat16."""
    import torch
    from torch.nn.functional import conv2d

    from suite.frameworks.pytorch import first_convolution

    for shape, (outputs, *kernel) in SHAPES:
        image, weight = drawn(shape, (outputs, shape[1], *kernel))

        def ours(x: Any, weight: Any) -> Any:
            return first_convolution.convolve_images(x, weight, None)

        for dtype in (torch.float64, torch.float16):
            name = f"{dtype} {shape} {outputs} {kernel}"
            yield both(name, ours, conv2d, image.to(dtype), [weight.to(dtype)])
    with mock.patch.object(first_convolution, "_fits", return_value=False):
        yield both("torch.float64, too large for the GPU", ours, conv2d, image, [weight])


def of_layers() -> Iterator[dict[str, Any]]:
    """The suite's convolution of images in fp64, by the kernels and as PyTorch's own."""
    import torch
    from torch.nn.functional import conv2d

    from suite.frameworks.pytorch import layers
    from suite.frameworks.pytorch.first_convolution import convolve_images

    for sides, (outputs, kernel, *window) in CONVOLUTIONS:
        image, *weights = drawn((2, 3, *sides), (outputs, 3, *kernel), (outputs,))

        def plain(x: Any, *weights: Any, window: Any = window) -> Any:
            return conv2d(x, *weights, *window)

        def in_blocks(x: Any, *weights: Any, window: Any = window) -> Any:
            return layers.convolve_blocks(x, *weights, *window)

        # Without code of the compiler: no C++ compiler is needed.
        compiled = torch.compile(in_blocks, backend="aot_eager", fullgraph=True)
        for way, function in (("eager", in_blocks), ("compiled", compiled)):

            def ours(*given: Any, function: Outputs = function) -> Any:
                # Builds of PyTorch for a CPU do not import the operator.
                changes = {"convolve_images": convolve_images, "_has_kernels": lambda *_: True}
                with mock.patch.multiple(layers, create=True, **changes):
                    return function(*given)

            yield both(f"layer {sides} {kernel} {way}", ours, plain, image, weights)
    # In faster_rcnn weights have the type of the masters, for autocast to round: it knows no operators.
    image, weights = image.half(), [weight.float() for weight in weights]
    yield both("torch.float16, weights of fp32", ours, plain, image, weights)


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    from suite.frameworks.pytorch import first_convolution_kernels

    found: dict[str, Any] = {}
    with mock.patch.multiple(first_convolution_kernels, PROGRAMS=PROGRAMS, WIDE=WIDE):
        for arrays in (*of_operator(), *of_layers()):
            found |= arrays
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
