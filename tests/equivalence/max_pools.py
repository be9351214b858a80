"""Max pooling by Triton's kernels against PyTorch's, in Triton's interpreter on the CPU; and ReLUs behind it.

``python -m tests.equivalence.max_pools FILE PACKAGES`` writes outputs and gradients, each under
``<case>/ours`` and ``<case>/plain``, in fp64 and fp16, compiled once, and of a ReLU before and after a pool.
Triton is imported from the folder PACKAGES.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# channels, sides; kernel, stride, padding, ceil: as in the suite's networks, and odd ones. A program of the
# kernels has 16 columns of 64 channels at most.
POOLS = (
    ((3, 14, 13), (3, 2, 1, False)),  # resnet50
    ((66, 7, 36), (3, 2, 0, False)),  # alexnet, inception_v3
    ((3, 8, 10), (3, 2, 0, True)),  # googlenet
    ((3, 5, 6), (3, 1, 1, True)),  # googlenet
    ((3, 7, 6), (2, 2, 0, True)),  # googlenet, vgg16
    ((2, 7, 8), (2, 3, 1, True)),
    ((2, 9, 12), (5, 4, 2, True)),
    ((2, 6, 5), (1, 3, 0, True)),
)


def images(shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Values of both signs, many equal ones, and NaN and infinity among them; channels-last."""
    import torch

    generator = torch.Generator().manual_seed(0)
    values = torch.randn((1, *shape), generator=generator, dtype=torch.float64)
    values = values.contiguous(memory_format=torch.channels_last)
    yield "values", values
    ties = values.round()
    ties[:, :, 2, 1] = torch.nan
    ties[:, 0, :, :] = -torch.inf
    yield "ties", ties


def both(name: str, ours: Callable[..., Any], plain: Callable[..., Any], x: Any) -> dict[str, Any]:
    """Outputs and gradients of the two functions of ``x``."""
    import torch

    found = {}
    for way, function in (("ours", ours), ("plain", plain)):
        image = x.detach().requires_grad_()
        output = function(image)
        slopes = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        (gradient,) = torch.autograd.grad(output, image, slopes.to(x.dtype))
        for part, value in (("output", output.detach()), ("gradient", gradient)):
            if way == "ours":
                assert value.is_contiguous(memory_format=torch.channels_last), name
            found[f"{name}/{part}/{way}"] = value.double().numpy()
    return found


def of_kernels() -> Iterator[dict[str, Any]]:
    """Every pool in fp64, one in fp16, and one within a compiled function."""
    import torch
    from torch.nn.functional import max_pool2d

    from suite.frameworks.pytorch.pooling import with_index

    for shape, (*window, ceil) in POOLS:

        def ours(x: Any, window: Any = window, ceil: Any = ceil) -> Any:
            return with_index(x, *window, ceil)[0]

        def plain(x: Any, window: Any = window, ceil: Any = ceil) -> Any:
            return max_pool2d(x, *window, ceil_mode=ceil)

        for kind, x in images(shape):
            yield both(f"{shape} {window} {ceil} {kind}", ours, plain, x)
        if shape == POOLS[0][0]:
            x = next(images(shape))[1]
            yield both("fp16", ours, plain, x.half())
            # Without code of the compiler: no C++ compiler is needed.
            compiled = torch.compile(lambda x: ours(2 * x) + 1, backend="aot_eager", fullgraph=True)
            yield both("compiled", compiled, lambda x: plain(2 * x) + 1, x)


def of_relus() -> Iterator[dict[str, Any]]:
    """A ReLU before and after a pool, as the suite's layers compute it and in the given order."""
    from torch.nn.functional import max_pool2d

    from suite.common import layers as described
    from suite.frameworks.pytorch import layers

    network = (described.Relu(), described.MaxPool(3, 2, 1), described.Relu())
    for kind, x in images(POOLS[0][0]):
        yield both(
            f"relu {kind}",
            lambda x: layers.compute(network, x, layers.Pass({})),
            lambda x: max_pool2d(x.relu(), 3, 2, 1).relu(),
            x,
        )


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    found: dict[str, Any] = {}
    for arrays in (*of_relus(), *of_kernels()):
        found |= arrays
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
