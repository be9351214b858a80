"""Layers of PyTorch and JAX beside the framework's own, in float64.

``python -m tests.equivalence.written_gradients FRAMEWORK FILE`` writes outputs and gradients of the suite's
convolution of blocks, in JAX also of its maximum of windows and normalisation, each under ``<case>/ours`` and
``<case>/plain``. No other test on a processor runs the convolution of blocks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from suite.common.stream import Stream
from tests.equivalence.case import UNOPTIMISED

# image sides, kernel, stride, padding: first layers of ResNet, AlexNet, VGG and Inception, and an odd one
CONVOLUTIONS = (
    ((32, 30), (7, 7), 2, (3, 3)),
    ((35, 33), (11, 11), 4, (2, 2)),
    ((15, 16), (3, 3), 1, (1, 1)),
    ((29, 30), (3, 3), 2, (0, 0)),
    ((16, 17), (5, 3), 2, (2, 1)),
)
# image sides, kernel, stride, edges
POOLS = (
    ((14, 14), 3, 2, ((1, 1), (1, 1))),
    ((13, 11), 3, 2, ((0, 0), (0, 0))),
    ((10, 12), 3, 2, ((0, 1), (0, 1))),
    ((9, 9), 3, 1, ((1, 1), (1, 1))),
    ((8, 8), 2, 2, ((0, 0), (0, 0))),
    ((7, 8), 2, 3, ((0, 0), (0, 0))),
)


def draw(key: str, *shape: int) -> Any:
    """Seeded values of both signs."""
    return Stream("test", "written", key).unit(int(np.prod(shape))).reshape(shape) * 2 - 1


def cases() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], list[Any]]]:
    """Name, the suite's function, the plain one, and the arguments of both."""
    import jax.numpy as jnp
    from jax import lax

    from suite.frameworks.jax import layers
    from suite.frameworks.jax.pooling import max_pool

    def reduced(x: Any, kernel: int, stride: int, edges: Any) -> Any:
        window, strides = (1, kernel, kernel, 1), (1, stride, stride, 1)
        return lax.reduce_window(x, -np.inf, lax.max, window, strides, [(0, 0), *edges, (0, 0)])

    def normalised(x: Any, gamma: Any, beta: Any) -> Any:
        mean, variance = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
        return (x - mean) / jnp.sqrt(variance + 1e-3) * gamma + beta

    for sides, size, stride, padding in CONVOLUTIONS:
        ours = partial(layers.convolve_blocks, stride=stride, padding=padding)
        plain = partial(layers.convolve, stride=stride, edges=[(edge, edge) for edge in padding])
        name = f"convolution {size} {stride}"
        yield name, ours, plain, [draw("image", 2, *sides, 3), draw("kernel", *size, 3, 7)]
    for sides, kernel, stride, edges in POOLS:
        image = draw("image", 2, *sides, 3)
        for kind, values in (("values", image), ("ties", np.maximum(image, 0).round(1))):
            name = f"pool {kernel} {stride} {edges} {kind}"
            window: dict[str, Any] = {"kernel": kernel, "stride": stride, "edges": edges}
            yield name, partial(max_pool, **window), partial(reduced, **window), [values]
    image = 100 + draw("image", 4, 6, 5, 3)  # a mean far from zero
    arguments = [image, draw("gamma", 3), draw("beta", 3)]
    yield "normalisation", lambda *given: layers.normalise(*given, 1e-3)[0], normalised, arguments


def with_gradients(function: Callable[..., Any], slopes: Any, *arguments: Any) -> tuple[Any, Any]:
    """The output of ``function``, and the gradients of its product with ``slopes``."""
    import jax

    output, backward = jax.vjp(function, *arguments)
    return output, backward(slopes)


def in_pytorch(file: str) -> None:
    """Write the convolutions of PyTorch."""
    import torch
    from torch.nn.functional import conv2d

    from suite.frameworks.pytorch.layers import convolve_blocks

    found: dict[str, Any] = {}
    for sides, size, stride, padding in CONVOLUTIONS:
        for part, function in (("ours", convolve_blocks), ("plain", conv2d)):
            images = torch.tensor(draw("image", 2, 3, *sides), requires_grad=True)
            kernel = torch.tensor(draw("kernel", 7, 3, *size), requires_grad=True)
            output = function(images, kernel, torch.tensor(draw("bias", 7)), stride, padding)
            output.backward(torch.tensor(draw("slopes", *output.shape)))
            values = {"output": output, "gradient 0": images.grad, "gradient 1": kernel.grad}
            for name, value in values.items():
                assert value is not None
                found[f"convolution {size} {stride}/{name}/{part}"] = value.detach().numpy()
    np.savez(file, **found)


def main(framework: str, file: str) -> None:
    """See the module."""
    if framework == "pytorch":
        in_pytorch(file)
        return
    os.environ["XLA_FLAGS"] = UNOPTIMISED  # compilation takes longer than the layers
    import jax

    jax.config.update("jax_enable_x64", True)
    found: dict[str, Any] = {}
    for name, ours, plain, arguments in cases():
        for side, function in (("ours", ours), ("plain", plain)):
            slopes = draw("slopes", *jax.eval_shape(function, *arguments).shape)
            output, gradients = jax.jit(partial(with_gradients, function))(slopes, *arguments)
            parts = {"output": output}
            for at, gradient in enumerate(gradients):
                parts[f"gradient {at}"] = gradient
            found |= {f"{name}/{part}/{side}": np.asarray(value) for part, value in parts.items()}
    from suite.frameworks.jax.pooling import max_pool

    image = draw("image", 1, 6, 6, 1)
    image[0, 2, 3, 0] = np.nan
    maxima, _ = jax.vjp(lambda x: max_pool(x, 2, 2, ((0, 0), (0, 0))), image)
    np.savez(file, **found, nan=np.asarray(maxima))


if __name__ == "__main__":
    main(*sys.argv[1:])
