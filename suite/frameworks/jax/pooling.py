"""Max pooling whose gradient is a sum of shifted images.

XLA computes the gradient of a windowed maximum by scattering, which takes three times as long on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Tensor = Any
Edges = Sequence[tuple[int, int]]  # rows before and after, columns before and after


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def max_pool(x: Tensor, kernel: int, stride: int, edges: Edges) -> Tensor:
    """The maximum of each window of ``x`` [N, H, W, C]; the gradient goes to the first one of a window.

    Windows have ``kernel`` rows and columns, ``stride`` apart; ``edges`` of minus infinity are added.
    """
    window, strides = (1, kernel, kernel, 1), (1, stride, stride, 1)
    start = np.asarray(-np.inf, x.dtype)
    return lax.reduce_window(x, start, lax.max, window, strides, [(0, 0), *edges, (0, 0)])


def _forward(x: Tensor, kernel: int, stride: int, edges: Edges) -> tuple[Tensor, Any]:
    """The maxima, and the index of each in its window, row by row."""
    padded = jnp.pad(x, [(0, 0), *edges, (0, 0)], constant_values=-np.inf)
    rows, columns = ((side - kernel) // stride + 1 for side in padded.shape[1:3])
    largest, index = None, None
    for at in range(kernel * kernel):
        row, column = divmod(at, kernel)
        seen = padded[:, row : row + stride * (rows - 1) + 1 : stride]
        seen = seen[:, :, column : column + stride * (columns - 1) + 1 : stride]
        if largest is None:
            largest, index = seen, jnp.zeros(seen.shape, jnp.uint8)
        else:
            larger = (seen > largest) | jnp.isnan(seen)  # as lax.max: NaN stays visible
            largest, index = jnp.where(larger, seen, largest), jnp.where(larger, np.uint8(at), index)
    return largest, (index, x.shape)


def _backward(kernel: int, stride: int, edges: Edges, kept: Any, slopes: Tensor) -> tuple[Tensor]:
    """The pixels whose row and column leave the same remainders by the stride form one image each."""
    index, (count, height, width, channels) = kept
    (above, _), (left, _) = edges
    blocks = -(-height // stride), -(-width // stride)
    wide = jnp.promote_types(slopes.dtype, jnp.float32)

    def shifted(tensor: Tensor, down: int, right: int) -> Tensor:
        """``tensor`` [N, rows, columns, C] moved, as [N, *blocks, C]; zeros where it has no value."""
        moves = [(0, 0, 0)]
        moves += [
            (move, block - side - move, 0)
            for move, block, side in zip((down, right), blocks, tensor.shape[1:3], strict=True)
        ]
        return lax.pad(tensor, np.zeros((), tensor.dtype), [*moves, (0, 0, 0)])

    images = []
    for row in range(stride):
        for column in range(stride):
            # Pixel stride * i + row is the row ``at`` of window i + (row + above - at) / stride.
            total = jnp.zeros((count, *blocks, channels), wide)
            for at in range((row + above) % stride, kernel, stride):
                for over in range((column + left) % stride, kernel, stride):
                    moves = (at - row - above) // stride, (over - column - left) // stride
                    chosen = shifted(index, *moves) == at * kernel + over
                    total += jnp.where(chosen, shifted(slopes, *moves).astype(wide), 0)
            images.append(total.astype(slopes.dtype))
    joined = jnp.stack(images, axis=3).reshape(count, *blocks, stride, stride, channels)
    joined = joined.transpose((0, 1, 3, 2, 4, 5)).reshape(count, blocks[0] * stride, -1, channels)
    return (joined[:, :height, :width],)


max_pool.defvjp(_forward, _backward)
