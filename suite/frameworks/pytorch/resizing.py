"""Cuts, resizes, mirrors and pads decoded images with batched matrix products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.common.image_reader import View

MOST_IMAGES = 128  # that are resized at a time
MOST_PIXELS = 1 << 26  # of the largest one, times their number: 400 MB of memory in float16


def chunks(views: Sequence[View]) -> Iterator[slice]:
    """Consecutive images that are resized at a time. Memory for each is that of the largest among them."""
    first, columns, rows = 0, 0, 0
    for at, view in enumerate(views):
        left, upper, right, lower = view.box
        columns, rows = max(columns, right - left), max(rows, lower - upper)
        count = at + 1 - first
        if count > 1 and (count > MOST_IMAGES or count * columns * rows > MOST_PIXELS):
            yield slice(first, at)
            first, columns, rows = at, right - left, lower - upper
    yield slice(first, len(views))


def transformed(
    images: Sequence[Tensor], views: Sequence[View], shape: tuple[int, int], fill: tuple[int, int, int]
) -> Tensor:
    """``images`` [3, height, width] uint8 as their views say, uint8 [n, *shape, 3].

    Pillow's bilinear resizing with antialiasing is linear in the columns of an image, and then in its rows.
    Its weights form a matrix for each axis, which also mirrors, moves the corner and cuts. As in Pillow the
    columns' result is rounded. In float16 on a GPU, in float32 elsewhere.
    """
    device = images[0].device
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    boxes = np.array([view.box for view in views])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    columns, rows = (-(-int(lengths.max()) // 8) * 8 for lengths in (widths, heights))
    cut_out = _cut_on_gpu if device.type == "cuda" else _cut_on_cpu
    cut = cut_out(images, boxes, torch.empty(len(images), rows, 3, columns, dtype=dtype, device=device))
    flipped = np.array([view.flipped for view in views])
    upright = np.zeros_like(flipped)
    sizes, corners = (np.array([getattr(view, name) for view in views]).T for name in ("size", "corner"))
    along, inside_columns = _weights(columns, shape[1], widths, sizes[0], corners[0], flipped, device)
    across, inside_rows = _weights(rows, shape[0], heights, sizes[1], corners[1], upright, device)
    narrow = (cut.view(len(images), -1, columns) @ along.to(dtype).mT).round_()
    resized = across.to(dtype) @ narrow.view(len(images), rows, 3 * shape[1])
    pixels = resized.round_().view(-1, shape[0], 3, shape[1]).to(torch.uint8).permute(0, 1, 3, 2)
    inside = inside_rows[:, :, None] & inside_columns[:, None]
    padding = torch.tensor(fill, dtype=torch.uint8, device=device)
    return torch.where(inside[..., None], pixels, padding).contiguous()


def _cut_on_cpu(images: Sequence[Tensor], boxes: NDArray[Any], target: Tensor) -> Tensor:
    """``target`` [n, rows, 3, columns] with the box of each image in its upper left, and zeros."""
    for room, image, (left, upper, right, lower) in zip(target.zero_(), images, boxes.tolist(), strict=True):
        part = image[:, upper:lower, left:right].permute(1, 0, 2)
        room[: lower - upper, :, : right - left] = part
    return target


def _cut_on_gpu(images: Sequence[Tensor], boxes: NDArray[Any], target: Tensor) -> Tensor:
    """As :func:`_cut_on_cpu` in one kernel: a copy of each image would take 0.1 ms of Python."""
    from suite.frameworks.pytorch import kernels  # imports Triton, which only CUDA builds have

    heights, widths = np.array([image.shape[1:] for image in images]).T
    planes = heights * widths
    starts = 3 * (np.cumsum(planes) - planes)
    left, upper, right, lower = boxes.T
    facts = np.stack([starts, planes, widths, left, upper, right - left, lower - upper]).astype(np.int64)
    joined = torch.cat([image.reshape(-1) for image in images])
    count, rows, _, columns = target.shape
    block = 1 << (columns - 1).bit_length()
    grid = (count * rows * 3,)
    kernels.cut_out[grid](
        joined, _enqueued_copy(facts, target.device), target, count, rows, columns, block=block
    )
    return target


def _enqueued_copy(values: NDArray[Any], device: torch.device) -> Tensor:
    """``values`` on ``device``. A copy from memory that is not pinned would wait for the stream."""
    host = torch.from_numpy(values)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


def _weights(
    length: int,
    count: int,
    extents: NDArray[Any],
    sizes: NDArray[Any],
    corners: NDArray[Any],
    mirrored: NDArray[Any],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Weights [n, count, length] of an axis, and which of its ``count`` pixels lie in the image [n, count].

    ``extents`` are the pixels of each image before it is resized to ``sizes``. The weights of a pixel form a
    triangle as wide as two pixels of the coarser of the two.
    """
    facts = np.stack([extents, sizes, corners, mirrored]).astype(np.float32)
    extent, size, corner, mirror = _enqueued_copy(facts, device)[:, :, None]
    at = torch.arange(count, device=device) + corner
    inside = (at >= 0) & (at < size)
    at = torch.where(mirror > 0, size - 1 - at, at)
    scale = extent / size
    centre = (at + 0.5) * scale
    pixel = torch.arange(length, device=device) + 0.5
    triangle = (1 - (pixel - centre[..., None]).abs() / scale.clamp(min=1)[..., None]).clamp(min=0)
    triangle *= pixel < extent[..., None]
    return triangle / triangle.sum(-1, keepdim=True).clamp(min=1e-6), inside
