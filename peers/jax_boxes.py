"""Boxes in JAX, for one image each (``jax.vmap`` over a batch): x1, y1, x2, y2 in pixels, [n, 4]."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LONGEST = math.log(1000 / 16)  # largest growth of a side in decoding, as a logarithm
BOX_WEIGHTS = np.array((10, 10, 5, 5), np.float32)  # of the encoding in the box head


def anchors(grids: Any, sides: Any, height: int, width: int) -> Any:
    """The anchors of all levels, three shapes at each position of each grid, float32 [n, 4]."""
    found = []
    for (rows, columns), side in zip(grids, sides, strict=True):
        ratios = np.sqrt([0.5, 1.0, 2.0])
        half = np.stack((-side / ratios, -side * ratios, side / ratios, side * ratios), axis=1) / 2
        y, x = np.meshgrid(
            np.arange(rows) * (height // rows), np.arange(columns) * (width // columns), indexing="ij"
        )
        centres = np.stack((x, y, x, y), axis=-1).reshape(-1, 1, 4)
        found.append((centres + half.round()).reshape(-1, 4))
    return np.concatenate(found).astype(np.float32)


def area(boxes: Any) -> Any:
    """Areas [...]."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def overlaps(first: Any, second: Any) -> Any:
    """Intersection over union [n, m]."""
    low = jnp.maximum(first[:, None, :2], second[None, :, :2])
    high = jnp.minimum(first[:, None, 2:], second[None, :, 2:])
    both = jnp.prod(jnp.maximum(high - low, 0), axis=2)
    return both / jnp.maximum(area(first)[:, None] + area(second) - both, 1e-6)


def centred(boxes: Any) -> tuple[Any, Any]:
    """Centres and sides [n, 2]."""
    sides = jnp.maximum(boxes[:, 2:] - boxes[:, :2], 1e-6)
    return boxes[:, :2] + sides / 2, sides


def encode(boxes: Any, near: Any) -> Any:
    """``boxes`` relative to the boxes ``near``: offsets of centres and logarithms of sides."""
    (centre, sides), (origin, unit) = centred(boxes), centred(near)
    return jnp.concatenate(((centre - origin) / unit, jnp.log(sides / unit)), axis=1)


def decode(moves: Any, near: Any, size: Any) -> Any:
    """The inverse of :func:`encode`, clipped to an image of ``size`` (height, width)."""
    origin, unit = centred(near)
    centre, half = moves[:, :2] * unit + origin, jnp.exp(jnp.minimum(moves[:, 2:], LONGEST)) * unit / 2
    most = jnp.tile(size[::-1], 2)
    return jnp.clip(jnp.concatenate((centre - half, centre + half), axis=1), 0, most)


def surviving(boxes: Any, real: Any, limit: float) -> Any:
    """Non-maximum suppression of ``boxes``, best first; ``real`` [n] masks those that exist.

    All boxes are decided anew from the survivors of the round before until none changes.
    """
    count = len(boxes)
    blocks = (overlaps(boxes, boxes) > limit) & (jnp.arange(count)[:, None] < jnp.arange(count))

    def decide(rounds: Any) -> Any:
        alive, _ = rounds
        return real & ~jnp.any(blocks & alive[:, None], axis=0), alive

    return lax.while_loop(lambda rounds: jnp.any(rounds[0] != rounds[1]), decide, (real, ~real))[0]


def sample(key: Any, positive: Any, negative: Any, count: int, most: int) -> tuple[Any, Any, Any]:
    """``count`` random candidates, at most ``most`` positive: indices, which exist, which are positive."""
    order = jax.random.uniform(key, positive.shape)
    ranked = jnp.where(positive, order, -1)
    chosen = positive & (ranked >= lax.top_k(ranked, most)[0][-1])
    values, index = lax.top_k(jnp.where(chosen, 2 + order, jnp.where(negative, order, -1)), count)
    return index, values >= 0, values >= 2


def pooled(levels: Any, boxes: Any, strides: Any, canonical: int, bins: int) -> Any:
    """Features [n, bins, bins, C] of ``boxes``: the mean of 2 x 2 bilinear samples in each bin (RoIAlign).

    Each box reads one of ``levels`` [h, w, C], by its size: ``canonical`` is the side for the third.
    """
    table = jnp.concatenate([level.reshape(-1, level.shape[2]) for level in levels])
    sizes = np.array([level.shape[:2] for level in levels])
    starts = np.concatenate(([0], np.cumsum(sizes.prod(axis=1))))[:-1]
    size = jnp.sqrt(jnp.maximum(area(boxes), 1e-6))
    level = jnp.floor(2 + jnp.log2(size / canonical) + 1e-6)
    level = jnp.clip(level, 0, len(levels) - 1).astype(jnp.int32)
    scaled = boxes / jnp.asarray(strides, jnp.float32)[level][:, None]
    steps = (jnp.arange(2 * bins) + 0.5) / (2 * bins)

    def axis(at: int, length: Any) -> tuple[Any, ...]:
        """Both neighbours [n, samples] of each sample, the share of the second, and whether it is inside."""
        low, high, last = scaled[:, at, None], scaled[:, at + 2, None], length[:, None] - 1
        position = low + jnp.maximum(high - low, 1) * steps
        inside = (position >= -1) & (position <= last + 1)
        position = jnp.clip(position, 0, last)
        first = jnp.floor(position).astype(jnp.int32)
        return first, jnp.minimum(first + 1, last), position - first, inside

    high, wide = (jnp.asarray(sizes[:, part])[level] for part in (0, 1))
    x1, x2, right, in_x = (part[:, None, :] for part in axis(0, wide))
    y1, y2, lower, in_y = (part[:, :, None] for part in axis(1, high))
    start, wide = (part[:, None, None] for part in (jnp.asarray(starts)[level], wide))
    corners = (
        (y1, x1, (1 - lower) * (1 - right)),
        (y1, x2, (1 - lower) * right),
        (y2, x1, lower * (1 - right)),
        (y2, x2, lower * right),
    )
    values = sum(table[start + y * wide + x] * (share * (in_y & in_x))[..., None] for y, x, share in corners)
    count, channels = len(boxes), table.shape[1]
    return values.reshape(count, bins, 2, bins, 2, channels).mean(axis=(2, 4))
