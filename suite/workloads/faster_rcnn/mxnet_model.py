"""The networks of Faster R-CNN in MXNet Gluon: backbone, feature pyramid, region proposals and box head.

The networks are hybridized; the stages between them are executed array by array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mxnet import autograd, nd
from numpy.typing import NDArray

from suite.common import layers
from suite.common.layers import Conv, MaxPool, Network, Relu, Residual
from suite.frameworks.mxnet.framework import Batch, Framework, Tensor
from suite.frameworks.mxnet.parameters import Block, add_constants
from suite.workloads.faster_rcnn import losses, regions, spec
from suite.workloads.faster_rcnn.backbone import Norms
from suite.workloads.faster_rcnn.mxnet_ops import Ops
from suite.workloads.faster_rcnn.tables import tables

Weights = dict[str, Any]


class FeaturesAndProposals(Block):
    """Scores [batch, anchors] and boxes [.., 4] of anchors, and the pooled levels as rows of channels."""

    def __init__(self, parameters: Any, dims: spec.Dimensions, dtype: str) -> None:
        inside = {parameter.name for parameter in layers.parameters(spec.head(dims))}
        super().__init__(parameters, [name for name in parameters if name not in inside])
        self._dims, self._dtype, self._parts = dims, dtype, spec.backbone(dims)

    def hybrid_forward(self, F: Any, images: Tensor, **weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See the class."""
        weight = self.named(weight)
        x = F.broadcast_sub(F.cast(images, self._dtype) / 255, weight["images.mean"])
        x = F.transpose(F.broadcast_div(x, weight["images.scale"]), axes=(0, 3, 1, 2))
        found = self._pyramid(F, weight, x)
        hidden, score, box = spec.proposer(self._dims)
        scores, moves = [], []
        for level in found:
            here = F.relu(_convolved(F, weight, hidden, level))
            scores.append(F.flatten(_last(F, _convolved(F, weight, score, here))))
            moves.append(F.flatten(_last(F, _convolved(F, weight, box, here))))
        pooled = [F.reshape(_last(F, level), shape=(0, -3, -2)) for level in found[: spec.POOLED_LEVELS]]
        table = F.reshape(F.concat(*pooled, dim=1), shape=(-3, 0))
        deltas = F.reshape(F.concat(*moves, dim=1), shape=(0, -1, 4))
        return F.concat(*scores, dim=1), deltas, table

    def _pyramid(self, F: Any, weight: Weights, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for number, part in enumerate(self._parts):
            x = self._run(F, part, weight, x)
            if number < spec.FROZEN_STAGES:
                x = F.BlockGrad(x)
            found.append(x)
        pairs = zip(spec.laterals(self._dims), found[1:], strict=True)
        inner = [_convolved(F, weight, layer, x) for layer, x in pairs]
        for level in reversed(range(len(inner) - 1)):
            inner[level] = inner[level] + F.UpSampling(inner[level + 1], scale=2, sample_type="nearest")
        outer = zip(spec.smoothers(self._dims), inner, strict=True)
        smooth = [_convolved(F, weight, layer, x) for layer, x in outer]
        every = (None,) * 4
        return [*smooth, F.slice(smooth[-1], begin=every, end=every, step=(1, 1, 2, 2))]

    def _run(self, F: Any, network: Network, weight: Weights, x: Tensor) -> Tensor:
        for layer, after in zip(network, (*network, None)[1:], strict=True):
            if isinstance(layer, Conv) and isinstance(after, layers.BatchNorm):
                scale, shift = (weight[f"{after.name}.{part}"] for part in ("scale", "shift"))
                kernel = F.broadcast_mul(weight[f"{layer.name}.weight"], scale)
                x = _convolution(F, x, kernel, shift, layer)
            elif isinstance(layer, Residual):
                shortcut = self._run(F, layer.shortcut, weight, x)
                x = F.relu(self._run(F, layer.body, weight, x) + shortcut)
            elif isinstance(layer, Relu):
                x = F.relu(x)
            elif isinstance(layer, MaxPool):
                sizes = {"kernel": layer.kernel, "stride": layer.stride, "pad": layer.padding}
                pairs = {name: (size, size) for name, size in sizes.items()}
                x = F.Pooling(x, pool_type="max", **pairs)
        return x


class BoxHead(Block):
    """Scores [batch * k, classes] and boxes [batch * k, 4 classes] of pooled [batch, k, bins, channels]."""

    def __init__(self, parameters: Any, dims: spec.Dimensions) -> None:
        super().__init__(parameters, [parameter.name for parameter in layers.parameters(spec.head(dims))])
        self._head = spec.head(dims)

    def hybrid_forward(self, F: Any, pooled: Tensor, **weight: Tensor) -> tuple[Tensor, Tensor]:
        """See the class."""
        weight = self.named(weight)
        x = F.reshape(F.transpose(pooled, axes=(0, 1, 3, 2)), shape=(-3, -3))
        hidden0, hidden1, score, box = self._head
        x = F.relu(_multiplied(F, weight, hidden1, F.relu(_multiplied(F, weight, hidden0, x))))
        return _multiplied(F, weight, score, x), _multiplied(F, weight, box, x)


def _constants(norms: Norms) -> dict[str, NDArray[Any]]:
    """The constants of the backbone beside its weights, in shapes that broadcast."""
    found = {
        f"images.{name}": np.array([float(value) for value in values]).reshape(1, 1, 1, 3)
        for name, values in (("mean", spec.MEAN), ("scale", spec.SCALE))
    }
    for name, (scale, shift) in norms.items():
        found |= {f"{name}.scale": scale.reshape(-1, 1, 1, 1), f"{name}.shift": shift}
    return found


class Model:
    """Losses and detections of a batch.

    A batch has ``images`` uint8 [batch, height, width, 3] of one of the specification's shapes, ``boxes``
    [batch, objects, 4] in pixels, ``labels`` (0: padding), ``sizes`` [batch, 2] and ``turns`` [batch, 2].
    """

    def __init__(self, parameters: Any, dims: spec.Dimensions, framework: Framework, norms: Norms) -> None:
        self._dims, self._framework = dims, framework
        self.ops = Ops(framework.dtype, framework.context)
        add_constants(parameters, framework, _constants(norms))
        self._features_and_proposals = framework.make_fast(
            FeaturesAndProposals(parameters, dims, framework.dtype)
        )
        self._head_block = framework.make_fast(BoxHead(parameters, dims))
        self._constants = {shape: self._device_tables(*shape) for shape in dims.shapes}

    def _device_tables(self, height: int, width: int) -> regions.Constants:
        made, tensor = tables(self._dims, height, width), self._framework.tensor
        order = tensor(made.order).astype(self._framework.dtype)
        return regions.Constants(made.grids, made.levels, tensor(made.anchors), order)

    def loss(self, batch: Batch) -> Tensor:
        """The sum of the four losses, [1]; to be called while gradients are recorded."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(batch["images"])
        with autograd.pause():
            truth = regions.truth_of(o, batch)
            anchors = regions.choose_anchors(o, c, dims, truth)
            found = regions.proposals(o, c, dims, True, logits, deltas, truth.sizes)
            rois, chosen = regions.choose_regions(o, c, dims, found, truth)
        scores, moves = self._box_head(table, c, rois)
        region_loss = losses.region_losses(o, dims, scores, moves, chosen)
        return losses.proposal_losses(o, logits, deltas, anchors) + region_loss

    def detect(self, batch: Batch) -> Tensor:
        """Detections [batch, n, 6]: see :func:`regions.detections`."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(batch["images"])
        found = regions.proposals(o, c, dims, False, logits, deltas, batch["sizes"])
        scores, moves = self._box_head(table, c, found[0])
        return regions.detections(o, dims, found, scores, moves, batch["sizes"])

    def raw(self, batch: Batch) -> Tensor:
        """All outputs of the networks in training, flattened: scores and boxes of anchors and regions."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(batch["images"])
        truth = regions.truth_of(o, batch)
        found = regions.proposals(o, c, dims, True, logits, deltas, truth.sizes)
        rois, _ = regions.choose_regions(o, c, dims, found, truth)
        parts = (logits, deltas, *self._box_head(table, c, rois))
        return nd.concat(*(nd.reshape(part, (-1,)) for part in parts), dim=0)

    def _constants_of(self, batch: Batch) -> regions.Constants:
        return self._constants[batch["images"].shape[1:3]]

    def _box_head(self, table: Tensor, c: regions.Constants, rois: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [batch, k, classes] and boxes [batch, k, 4 classes] of ``rois`` [batch, k, 4]."""
        with autograd.pause():
            index, weight = regions.taps(self.ops, c, self._dims, rois)
        batch, count, bins, reads = index.shape
        # A small matrix product per bin is several times faster here than an element-wise product and a sum.
        values = nd.take(table, nd.reshape(index, (-1, reads)))
        pooled = nd.batch_dot(nd.reshape(weight, (-1, 1, reads)), values)
        scores, moves = self._head_block(nd.reshape(pooled, (batch, count, bins, -1)))
        each = (batch, count)
        return nd.reshape(scores, (*each, -1)), nd.reshape(moves, (*each, -1))


def _last(F: Any, x: Tensor) -> Tensor:
    """``x`` with its channels last."""
    return F.transpose(x, axes=(0, 2, 3, 1))


def _convolved(F: Any, weight: Weights, layer: Conv, x: Tensor) -> Tensor:
    """A convolution with bias."""
    kernel, bias = (weight[f"{layer.name}.{part}"] for part in ("weight", "bias"))
    return _convolution(F, x, kernel, bias, layer)


def _convolution(F: Any, x: Tensor, kernel: Tensor, bias: Tensor, layer: Conv) -> Tensor:
    stride = (layer.stride, layer.stride)
    sizes = {"kernel": layer.kernel, "stride": stride, "pad": layer.padding}
    return F.Convolution(x, kernel, bias, num_filter=layer.outputs, **sizes)


def _multiplied(F: Any, weight: Weights, layer: layers.Dense, x: Tensor) -> Tensor:
    """A fully connected layer with bias."""
    kernel, bias = (weight[f"{layer.name}.{part}"] for part in ("weight", "bias"))
    return F.FullyConnected(x, kernel, bias, num_hidden=layer.outputs)
