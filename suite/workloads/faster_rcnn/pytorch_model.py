"""The networks of Faster R-CNN in PyTorch: backbone, feature pyramid, region proposals and box head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite.common import layers as network_layers
from suite.common.layers import Conv
from suite.frameworks.pytorch import layers
from suite.frameworks.pytorch.framework import Batch, Framework
from suite.workloads.faster_rcnn import boxes, losses, pytorch_regions, regions, spec
from suite.workloads.faster_rcnn.backbone import Norms
from suite.workloads.faster_rcnn.pytorch_ops import Ops
from suite.workloads.faster_rcnn.tables import tables

Weights = Mapping[str, Tensor]


class Model:
    """Losses and detections of a batch; each call passes ``weights`` by canonical name.

    A batch has ``images`` uint8 [batch, height, width, 3] of one of the specification's shapes, ``boxes``
    [batch, objects, 4] in pixels, ``labels`` (0: padding), ``sizes`` [batch, 2] and ``turns`` [batch, 2].
    """

    def __init__(self, dims: spec.Dimensions, framework: Framework, norms: Norms, kernels: bool) -> None:
        """``kernels``: match, suppress and pool by Triton's kernels; a pool's gradient has no fixed order."""
        self._dims, self._framework, self._kernels = dims, framework, kernels
        self._stages: Any = pytorch_regions if kernels else boxes
        self.ops = Ops(framework.dtype, framework.device)
        backbone = spec.backbone(dims)
        self._parts = [network_layers.folded(part) for part in backbone]
        pairs = [pair for part in backbone for pair in network_layers.normalised(part)]
        # Scale and shift of the normalisation behind each convolution of the backbone.
        self._norms = {conv.name: tuple(map(framework.tensor, norms[norm.name])) for conv, norm in pairs}
        mean, scale = ([float(part) for part in parts] for parts in (spec.MEAN, spec.SCALE))
        self._mean = torch.tensor(mean, dtype=framework.dtype, device=framework.device)
        self._scale = torch.tensor(scale, dtype=framework.dtype, device=framework.device)
        self._constants = {shape: self._device_tables(*shape) for shape in dims.shapes}
        self._levels = {c.grids: framework.tensor(pooled_levels(c.grids)) for c in self._constants.values()}

    def _device_tables(self, height: int, width: int) -> regions.Constants:
        made, tensor = tables(self._dims, height, width), self._framework.tensor
        order = tensor(made.order).to(self._framework.dtype)
        return regions.Constants(made.grids, made.levels, tensor(made.anchors), order)

    def loss(self, weights: Weights, batch: Batch) -> Tensor:
        """The sum of the four losses, a scalar."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        with torch.no_grad():
            truth = regions.truth_of(o, batch)
            anchors = regions.choose_anchors(o, c, dims, truth, self._stages.match_anchors)
            found = regions.proposals(o, c, dims, True, logits, deltas, truth.sizes, self._stages.survivors)
            rois, chosen = regions.choose_regions(o, c, dims, found, truth)
        scores, moves = self._box_head(weights, table, c, rois)
        region_loss = losses.region_losses(o, dims, scores, moves, chosen)
        return losses.proposal_losses(o, logits, deltas, anchors) + region_loss

    def detect(self, weights: Weights, batch: Batch) -> Tensor:
        """Detections [batch, n, 6]: see :func:`regions.detections`."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        found = regions.proposals(o, c, dims, False, logits, deltas, batch["sizes"], self._stages.survivors)
        scores, moves = self._box_head(weights, table, c, found[0])
        return regions.detections(o, dims, found, scores, moves, batch["sizes"], self._stages.survivors)

    def raw(self, weights: Weights, batch: Batch) -> Tensor:
        """All outputs of the networks in training, flattened: scores and boxes of anchors and regions."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        truth = regions.truth_of(o, batch)
        found = regions.proposals(o, c, dims, True, logits, deltas, truth.sizes)
        rois, _ = regions.choose_regions(o, c, dims, found, truth)
        parts = (logits, deltas, *self._box_head(weights, table, c, rois))
        return torch.cat([part.reshape(-1) for part in parts])

    def _constants_of(self, batch: Batch) -> regions.Constants:
        height, width = batch["images"].shape[1:3]
        return self._constants[height, width]

    def _features_and_proposals(self, weights: Weights, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [batch, anchors] and boxes [.., 4] of anchors, and the pooled levels as rows of channels."""
        dtype = self._framework.dtype
        x = ((images.to(dtype) / 255 - self._mean) / self._scale).permute(0, 3, 1, 2)
        x = x.to(self._framework.compute_dtype)  # as autocast would, but `convolve` sees the type
        with self._framework.autocast():
            found = self._pyramid(weights, x)
            scores, moves = [], []
            hidden, score, box = spec.proposer(self._dims)
            for level in found:
                here = F.relu(convolved(weights, hidden, level))
                scores.append(convolved(weights, score, here).permute(0, 2, 3, 1).flatten(1))
                moves.append(convolved(weights, box, here).permute(0, 2, 3, 1).flatten(1))
        self._framework.observed.note(activations=found[0])
        logits, deltas = torch.cat(scores, dim=1).to(dtype), torch.cat(moves, dim=1).to(dtype)
        pooled = [level.permute(0, 2, 3, 1).flatten(1, 2) for level in found[: spec.POOLED_LEVELS]]
        return logits, deltas.reshape(*logits.shape, 4), torch.cat(pooled, dim=1).flatten(0, 1)

    def _pyramid(self, weights: Weights, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        run = layers.Pass(self._folded(weights))
        for number, part in enumerate(self._parts):
            with torch.set_grad_enabled(torch.is_grad_enabled() and number >= spec.FROZEN_STAGES):
                x = layers.compute(part, x, run)
            found.append(x)
        inner = [
            convolved(weights, layer, x)
            for layer, x in zip(spec.laterals(self._dims), found[1:], strict=True)
        ]
        for level in reversed(range(len(inner) - 1)):
            inner[level] = inner[level] + doubled(inner[level + 1])
        outer = [
            convolved(weights, layer, x) for layer, x in zip(spec.smoothers(self._dims), inner, strict=True)
        ]
        return [*outer, outer[-1][:, :, ::2, ::2]]

    def _folded(self, weights: Weights) -> Weights:
        """The backbone's kernels times the normalisations' scales, and the shifts."""
        found = {}
        for name, (scale, shift) in self._norms.items():
            found[f"{name}.weight"] = weights[f"{name}.weight"] * scale.reshape(-1, 1, 1, 1)
            found[f"{name}.bias"] = shift
        return found

    def _pool(self, table: Tensor, c: regions.Constants, rois: Tensor) -> Tensor:
        """Means [batch, k, bins, channels] of the bins of ``rois``."""
        if self._kernels:
            return pytorch_regions.pool(
                table, rois, self._levels[c.grids], self._dims.pool, self._dims.canonical
            )
        index, weight = regions.taps(self.ops, c, self._dims, rois)
        # Gradients of overlapping regions are summed in the type of the parameters.
        rows = self.ops.take_rows(table.to(self._framework.dtype), index)
        return (rows * weight.unsqueeze(-1)).sum(dim=-2)

    def _box_head(
        self, weights: Weights, table: Tensor, c: regions.Constants, rois: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores [batch, k, classes] and boxes [batch, k, 4 classes] of ``rois`` [batch, k, 4]."""
        x = self._pool(table, c, rois).transpose(2, 3).flatten(2)
        hidden0, hidden1, score, box = spec.head(self._dims)
        with self._framework.autocast():
            x = F.relu(multiplied(weights, hidden1, F.relu(multiplied(weights, hidden0, x))))
            scores, moves = multiplied(weights, score, x), multiplied(weights, box, x)
        return scores.to(self._framework.dtype), moves.to(self._framework.dtype)


def pooled_levels(grids: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """Stride, height, width and first row of each pooled level [levels, 4], of a pyramid of ``grids``."""
    sizes = [high * wide for high, wide in grids[: spec.POOLED_LEVELS]]
    rows = [
        (stride, *grid, sum(sizes[:level]))
        for level, (stride, grid) in enumerate(zip(spec.STRIDES, grids, strict=True))
        if level < spec.POOLED_LEVELS
    ]
    return np.array(rows, np.int32)


def doubled(x: Tensor) -> Tensor:
    """``x`` [N, C, H, W] with each pixel four times, [N, C, 2 H, 2 W], in the channels-last layout.

    The gradient that ``torch.compile`` makes of ``F.interpolate`` adds up atomically, eight times as slow.
    """
    count, channels, high, wide = x.shape
    large = x.permute(0, 2, 3, 1)[:, :, None, :, None].expand(-1, -1, 2, -1, 2, -1)
    return large.reshape(count, 2 * high, 2 * wide, channels).permute(0, 3, 1, 2)


def convolved(weights: Weights, layer: Conv, x: Tensor) -> Tensor:
    """A convolution with bias."""
    kernel, bias = weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"]
    return F.conv2d(x, kernel, bias, layer.stride, layer.padding)


def multiplied(weights: Weights, layer: Any, x: Tensor) -> Tensor:
    """A fully connected layer with bias."""
    return F.linear(x, weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"])
