"""Batch normalisation by Triton's kernels against PyTorch's, in Triton's interpreter on the CPU.

``python -m tests.equivalence.batch_norms FILE PACKAGES`` writes outputs, statistics and gradients, each
under ``<case>/<part>/ours`` and ``<case>/<part>/plain``: of the operator in fp64 and half precision, and of a
network of the suite's layers, compiled and not. Triton is imported from the folder PACKAGES.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

# Images [N, C, H, W]: more channels than a program has, numbers that no block divides, one row; with at most
# six programs most of them loop.
SHAPES = ((2, 3, 5, 7), (3, 70, 4, 5), (2, 64, 12, 12), (1, 16, 1, 2), (2, 200, 3, 3))
PROGRAMS = 6
EPSILON = 1e-5


def both(
    name: str,
    ours: Callable[..., Sequence[Any]],
    plain: Callable[..., Sequence[Any]],
    inputs: Sequence[Any],
    layout: Callable[[Any], Any],
) -> dict[str, Any]:
    """Outputs of the two functions, and the gradients of the first output's products with random slopes.

    ``ours`` gets ``inputs`` as they are, ``plain`` in fp64; ``layout`` sets the memory layout of slopes.
    """
    import torch

    found = {}
    for way, function in (("ours", ours), ("plain", plain)):
        wide = torch.Tensor.double if way == "plain" else torch.Tensor.detach
        given = [torch.nn.Parameter(wide(x)) for x in inputs]  # where the exchange splits what is compiled
        outputs = function(*given)
        generator = torch.Generator().manual_seed(1)
        slopes = torch.randn(outputs[0].shape, generator=generator, dtype=torch.float64)
        slopes = slopes.to(inputs[0].dtype).to(outputs[0].dtype)
        gradients = torch.autograd.grad(outputs[0], given, layout(slopes))
        for part, value in enumerate((*outputs, *gradients)):
            found[f"{name}/{part}/{way}"] = value.detach().double().numpy()
    return found


def channels_last(x: Any) -> Any:
    """``x`` in that layout."""
    import torch

    return x.contiguous(memory_format=torch.channels_last)


def slice_of_more(x: Any) -> Any:
    """``x`` as a part of more channels, in the channels-last layout: as behind a concatenation."""
    import torch

    more = channels_last(torch.cat((x + 1, x, x - 1), dim=1))
    return more[:, x.shape[1] : 2 * x.shape[1]]


def drawn(shape: tuple[int, ...], dtype: Any) -> list[Any]:
    """Images whose channels have means far from zero, gamma and beta."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> Any:
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    channels, wide = shape[1], torch.float64 if dtype == torch.float64 else torch.float32
    images = 2 * draw(*shape) + 30 * draw(channels)[:, None, None]
    return [channels_last(images.to(dtype)), draw(channels).to(wide), draw(channels).to(wide)]


def of_operator() -> Iterator[dict[str, Any]]:
    """Every shape in fp64, in each layout of slopes, with a ReLU and without; and in half precision."""
    from suite.frameworks.pytorch.normalisation import normalise

    for relu in (False, True):

        def ours(*inputs: Any, relu: bool = relu) -> Any:
            return normalise(*inputs, EPSILON, relu)

        def plain(x: Any, gamma: Any, beta: Any, relu: bool = relu) -> Any:
            y, *statistics = normalised(x, gamma, beta)
            return y.relu() if relu else y, *statistics

        yield from of_shapes(f"relu {relu}", ours, plain, drawn)


def of_sum() -> Iterator[dict[str, Any]]:
    """The same of the sum with a shortcut: of its output alone, and of the output and its copy."""
    import torch

    from suite.frameworks.pytorch.normalisation import normalise_and_add

    def inputs(*described: Any) -> list[Any]:
        x, gamma, beta = drawn(*described)
        return [x, (gamma[:, None, None] * x.flip(0) / 30).to(x.dtype), gamma, beta]

    for uses in (1, 2):

        def ours(*inputs: Any, uses: int = uses) -> Any:
            y, again, *statistics = normalise_and_add(*inputs, EPSILON)
            return torch.cat((y, 2 * again), dim=1) if uses == 2 else y, *statistics

        def plain(x: Any, shortcut: Any, gamma: Any, beta: Any, uses: int = uses) -> Any:
            y, *statistics = normalised(x, gamma, beta)
            y = (y + shortcut).relu()
            return torch.cat((y, 2 * y), dim=1) if uses == 2 else y, *statistics

        yield from of_shapes(f"sum {uses}", ours, plain, inputs)


def of_both() -> Iterator[dict[str, Any]]:
    """The same of the sum with a normalised shortcut."""
    import torch

    from suite.frameworks.pytorch.normalisation import normalise_both_and_add

    def inputs(*described: Any) -> list[Any]:
        x, gamma, beta = drawn(*described)
        return [x, x.flip(0, 2) / 2 + 1, gamma, beta, beta + 1, gamma / 2]

    def ours(x: Any, x2: Any, gamma: Any, beta: Any, *scales: Any) -> Any:
        y, again, *found = normalise_both_and_add(x, gamma, beta, EPSILON, x2, *scales, 0.5)
        return torch.cat((y, 2 * again), dim=1), *found

    def plain(x: Any, x2: Any, gamma: Any, beta: Any, gamma2: Any, beta2: Any) -> Any:
        (y, *found), (z, *others) = normalised(x, gamma, beta), normalised(x2, gamma2, beta2, 0.5)
        y = (y + z).relu()
        return torch.cat((y, 2 * y), dim=1), *found, *others

    yield from of_shapes("both", ours, plain, inputs)


def normalised(x: Any, gamma: Any, beta: Any, epsilon: float = EPSILON) -> list[Any]:
    """Of PyTorch's operators: the normalised ``x``, mean, biased variance and scale."""
    import torch

    y, mean, scale = torch.native_batch_norm(x, gamma, beta, None, None, True, 0.0, epsilon)
    return [y, mean, x.var((0, 2, 3), correction=0), scale]


def of_shapes(
    name: str, ours: Callable[..., Any], plain: Callable[..., Any], inputs: Callable[..., Any]
) -> Iterator[dict[str, Any]]:
    """The two functions of ``inputs(shape, type)``: every shape and layout of slopes in fp64, one in half."""
    import torch

    for shape in SHAPES:
        for layout in (channels_last, slice_of_more, torch.Tensor.contiguous):
            given = inputs(shape, torch.float64)
            yield both(f"fp64 {name} {shape} {layout.__name__}", ours, plain, given, layout)
    for dtype in (torch.float16, torch.bfloat16):
        yield both(f"half {name} {dtype}", ours, plain, inputs(SHAPES[1], dtype), channels_last)


def of_networks() -> Iterator[dict[str, Any]]:
    """Layers of the suite in fp64 with the kernels and without: residual blocks, a concatenation, a pool."""
    import torch
    from torch._dynamo.backends.distributed import DDPOptimizer
    from torch._dynamo.backends.registry import lookup_backend

    from suite.common import layers as described
    from suite.frameworks.pytorch import layers, normalisation

    def convolved(name: str, inputs: int, outputs: int) -> described.Network:
        conv = described.Conv(name, inputs, outputs, (1, 1), 1, (0, 0), bias=False, init=described.ZERO)
        return conv, described.BatchNorm(name, outputs, "1e-5", "0.9")

    relu = described.Relu()
    body = (*convolved("a", 5, 7), relu, *convolved("b", 7, 6))
    same = (*convolved("f", 6, 4), relu, *convolved("g", 4, 6))
    third = (*convolved("h", 6, 2), relu, *convolved("i", 2, 6))
    branches = (*convolved("d", 6, 3), relu), (*convolved("e", 6, 4), relu)
    network = (
        *(*convolved("s", 3, 5), relu, described.MaxPool(2, 2)),
        *(described.Residual(body, convolved("c", 5, 6)), described.Residual(same, ())),
        *(described.Residual(third, ()), described.Concat(branches), relu),
    )
    names = [p.name for p in described.parameters(network)]
    generator = torch.Generator().manual_seed(2)
    values = [
        torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in described.parameters(network)
    ]
    images = channels_last(torch.randn((2, 3, 6, 8), generator=generator, dtype=torch.float64))

    def plain(x: Any, *weights: Any) -> tuple[Any, ...]:
        run = layers.Pass(dict(zip(names, weights, strict=True)))
        return layers.compute(network, x, run), *run.seen.values()

    # Builds of PyTorch for a CPU do not import them.
    names_of_operators = ("normalise", "normalise_and_add", "normalise_both_and_add")
    operators = {name: getattr(normalisation, name) for name in names_of_operators}

    def always(*_: Any) -> bool:
        return True

    # Without code of the compiler: no C++ compiler is needed.
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True)
    # As with copy engines: a part for every few gradients.
    in_parts = DDPOptimizer(8, lookup_backend("aot_eager"), 8)
    split = torch.compile(plain, backend=in_parts.compile_fn, fullgraph=True)
    for name, function in (("eager", plain), ("compiled", compiled), ("split", split)):

        def ours(*inputs: Any, function: Callable[..., Any] = function) -> tuple[Any, ...]:
            with mock.patch.multiple(layers, create=True, **operators, _by_kernels=always):
                return tuple(function(*inputs))

        yield both(f"fp64 network {name}", ours, plain, (images, *values), channels_last)


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    from suite.frameworks.pytorch import normalisation_kernels

    found: dict[str, Any] = {}
    with mock.patch.object(normalisation_kernels, "PROGRAMS", PROGRAMS):
        for arrays in (*of_operator(), *of_sum(), *of_both(), *of_networks()):
            found |= arrays
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
