"""Matching of anchors, suppression of boxes and pooling of regions in Triton's kernels, for a GPU.

They are operators of PyTorch, so that the compiler calls them as they are. Their kernels are imported when
one first runs, because only CUDA builds have Triton. The plain ways are the functions of the same names in
``boxes.py``, and ``regions.taps`` with a gather.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from suite.workloads.faster_rcnn import boxes
from suite.workloads.faster_rcnn.ops import Ops


@torch.library.custom_op("suite::pool_regions", mutates_args=())
def pool(table: Tensor, regions: Tensor, levels: Tensor, side: int, canonical: int) -> Tensor:
    """Means [batch, k, side * side, channels] of the bins of ``regions`` [batch, k, 4], in the table's type.

    ``table`` [rows, channels] has the pooled levels of all images, one image behind the other; ``levels``
    int32 [levels, 4] the stride, height, width and first row of each. Sums and the gradient of the table are
    in the type of the regions, which have no gradient.
    """
    from suite.workloads.faster_rcnn import pytorch_kernels

    pooled = _empty(table, regions, levels, side, canonical)
    pytorch_kernels.pool(table.contiguous(), regions.contiguous(), levels, pooled, canonical)
    return pooled


@pool.register_fake
def _empty(table: Tensor, regions: Tensor, levels: Tensor, side: int, canonical: int) -> Tensor:
    del levels, canonical
    return table.new_empty(*regions.shape[:2], side * side, table.shape[1])


@torch.library.custom_op("suite::pool_regions_gradient", mutates_args=())
def _gradient(slopes: Tensor, regions: Tensor, levels: Tensor, rows: int, canonical: int) -> Tensor:
    from suite.workloads.faster_rcnn import pytorch_kernels

    gradient = _empty_gradient(slopes, regions, levels, rows, canonical).zero_()
    pytorch_kernels.pool_backward(slopes.contiguous(), regions.contiguous(), levels, gradient, canonical)
    return gradient


@_gradient.register_fake
def _empty_gradient(slopes: Tensor, regions: Tensor, levels: Tensor, rows: int, canonical: int) -> Tensor:
    del levels, canonical
    return regions.new_empty(rows, slopes.shape[-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    table, regions, levels, _, canonical = inputs
    ctx.save_for_backward(regions, levels)
    ctx.sizes, ctx.dtype = (len(table), canonical), table.dtype


def _differentiate(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None, None, None]:
    gradient = _gradient(slopes, *ctx.saved_tensors, *ctx.sizes)
    return gradient.to(ctx.dtype), None, None, None, None


pool.register_autograd(_differentiate, setup_context=_keep)


@torch.library.custom_op("suite::suppress_boxes", mutates_args=())
def _suppress(
    boxes: Tensor, score: Tensor, there: Tensor, labels: Tensor | None, limit: float, rounds: int
) -> Tensor:
    from suite.workloads.faster_rcnn import pytorch_kernels

    alive = _empty_mask(boxes, score)
    labels = None if labels is None else labels.contiguous()
    pytorch_kernels.suppress(
        boxes.contiguous(), score.contiguous(), there.contiguous(), labels, alive, limit, rounds
    )
    return alive


@_suppress.register_fake
def _empty_mask(_: Tensor, score: Tensor, *_others: Any) -> Tensor:
    return torch.empty_like(score, memory_format=torch.contiguous_format)


def survivors(
    o: Ops,
    rois: Tensor,
    score: Tensor,
    there: Tensor,
    threshold: float,
    rounds: int,
    labels: Tensor | None = None,
) -> Tensor:
    """As :func:`suite.workloads.faster_rcnn.boxes.survivors`."""
    del o
    return _suppress(rois, score, there, labels, boxes.grid_threshold(threshold), rounds)


@torch.library.custom_op("suite::match_anchors", mutates_args=())
def _match(anchors: Tensor, truth: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from suite.workloads.faster_rcnn import pytorch_kernels

    found = _empty_match(anchors, truth, real)
    pytorch_kernels.match(anchors.contiguous(), truth.contiguous(), real.contiguous(), *found)
    return found


@_match.register_fake
def _empty_match(anchors: Tensor, truth: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    del real
    shape = len(truth), len(anchors)
    return anchors.new_empty(shape), anchors.new_empty(shape, dtype=torch.int64), anchors.new_empty(shape)


def match_anchors(o: Ops, anchors: Tensor, truth: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`suite.workloads.faster_rcnn.boxes.match_anchors`."""
    del o
    found: tuple[Tensor, Tensor, Tensor] = _match(anchors, truth, real)
    return found
