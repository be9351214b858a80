"""The networks of Faster R-CNN in TensorFlow: backbone, feature pyramid, region proposals and box head.

Weights have the layout of :func:`suite.common.channels_last.stored`: kernels [height, width, inputs,
outputs], matrices [inputs, outputs].
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from suite.common import layers
from suite.common.layers import Conv, MaxPool, Network, Relu, Residual
from suite.frameworks.tensorflow.framework import Batch, Framework, Tensor
from suite.workloads.faster_rcnn import losses, regions, spec
from suite.workloads.faster_rcnn.backbone import Norms
from suite.workloads.faster_rcnn.tables import tables
from suite.workloads.faster_rcnn.tensorflow_ops import Ops

Weights = dict[str, Any]


class Model:
    """Losses and detections of a batch; each call passes ``weights`` by canonical name.

    A batch has ``images`` uint8 [batch, height, width, 3] of one of the specification's shapes, ``boxes``
    [batch, objects, 4] in pixels, ``labels`` (0: padding), ``sizes`` [batch, 2] and ``turns`` [batch, 2].
    """

    def __init__(self, dims: spec.Dimensions, framework: Framework, norms: Norms) -> None:
        self._dims, self._framework = dims, framework
        self.ops = Ops(framework.dtype)
        self._parts = spec.backbone(dims)
        self._norms = {
            name: (framework.tensor(scale), framework.tensor(shift)) for name, (scale, shift) in norms.items()
        }
        mean, scale = ([float(part) for part in parts] for parts in (spec.MEAN, spec.SCALE))
        self._mean, self._scale = tf.constant(mean, framework.dtype), tf.constant(scale, framework.dtype)
        self._constants = {shape: self._device_tables(*shape) for shape in dims.shapes}

    def _device_tables(self, height: int, width: int) -> regions.Constants:
        made, tensor = tables(self._dims, height, width), self._framework.tensor
        order = tf.cast(tensor(made.order), self._framework.dtype)
        return regions.Constants(made.grids, made.levels, tensor(made.anchors), order)

    def loss(self, weights: Weights, batch: Batch) -> Tensor:
        """The sum of the four losses, a scalar."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        truth = regions.truth_of(o, batch)
        anchors = regions.choose_anchors(o, c, dims, truth)
        cut_off = tf.stop_gradient(logits), tf.stop_gradient(deltas)
        found = regions.proposals(o, c, dims, True, *cut_off, truth.sizes)
        rois, chosen = regions.choose_regions(o, c, dims, found, truth)
        scores, moves = self._box_head(weights, table, c, rois)
        region_loss = losses.region_losses(o, dims, scores, moves, chosen)
        return losses.proposal_losses(o, logits, deltas, anchors) + region_loss

    def detect(self, weights: Weights, batch: Batch) -> Tensor:
        """Detections [batch, n, 6]: see :func:`regions.detections`."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        found = regions.proposals(o, c, dims, False, logits, deltas, batch["sizes"])
        scores, moves = self._box_head(weights, table, c, found[0])
        return regions.detections(o, dims, found, scores, moves, batch["sizes"])

    def raw(self, weights: Weights, batch: Batch) -> Tensor:
        """All outputs of the networks in training, flattened: scores and boxes of anchors and regions."""
        o, dims, c = self.ops, self._dims, self._constants_of(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        truth = regions.truth_of(o, batch)
        found = regions.proposals(o, c, dims, True, logits, deltas, truth.sizes)
        rois, _ = regions.choose_regions(o, c, dims, found, truth)
        parts = (logits, deltas, *self._box_head(weights, table, c, rois))
        return tf.concat([tf.reshape(part, (-1,)) for part in parts], axis=0)

    def _constants_of(self, batch: Batch) -> regions.Constants:
        _, height, width, _ = batch["images"].shape
        return self._constants[height, width]

    def _features_and_proposals(self, weights: Weights, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [batch, anchors] and boxes [.., 4] of anchors, and the pooled levels as rows of channels."""
        dtype, count = self._framework.dtype, images.shape[0]
        x = self._framework.compute((tf.cast(images, dtype) / 255 - self._mean) / self._scale)
        found = self._pyramid(weights, x)
        self._framework.observed.note(activations=found[0])
        scores, moves = [], []
        hidden, score, box = spec.proposer(self._dims)
        for level in found:
            here = tf.nn.relu(self._convolved(weights, hidden, level))
            scores.append(tf.reshape(self._convolved(weights, score, here), (count, -1)))
            moves.append(tf.reshape(self._convolved(weights, box, here), (count, -1, 4)))
        logits = tf.cast(tf.concat(scores, axis=1), dtype)
        deltas = tf.cast(tf.concat(moves, axis=1), dtype)
        # Gradients of overlapping regions are summed in the type of the parameters.
        pooled = [
            tf.cast(tf.reshape(level, (count, -1, self._dims.channels)), dtype)
            for level in found[: spec.POOLED_LEVELS]
        ]
        return logits, deltas, tf.reshape(tf.concat(pooled, axis=1), (-1, self._dims.channels))

    def _pyramid(self, weights: Weights, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for number, part in enumerate(self._parts):
            x = self._run(part, weights, x)
            if number < spec.FROZEN_STAGES:
                x = tf.stop_gradient(x)
            found.append(x)
        pairs = zip(spec.laterals(self._dims), found[1:], strict=True)
        inner = [self._convolved(weights, layer, x) for layer, x in pairs]
        for level in reversed(range(len(inner) - 1)):
            inner[level] += _doubled(inner[level + 1])
        outer = zip(spec.smoothers(self._dims), inner, strict=True)
        smooth = [self._convolved(weights, layer, x) for layer, x in outer]
        return [*smooth, smooth[-1][:, ::2, ::2]]

    def _run(self, network: Network, weights: Weights, x: Tensor) -> Tensor:
        for layer, after in zip(network, (*network, None)[1:], strict=True):
            if isinstance(layer, Conv) and isinstance(after, layers.BatchNorm):
                scale, shift = self._norms[after.name]
                kernel = tf.cast(weights[f"{layer.name}.weight"], scale.dtype) * scale
                x = self._convolution(x, kernel, shift, layer)
            elif isinstance(layer, Residual):
                shortcut = self._run(layer.shortcut, weights, x)
                x = tf.nn.relu(self._run(layer.body, weights, x) + shortcut)
            elif isinstance(layer, Relu):
                x = tf.nn.relu(x)
            elif isinstance(layer, MaxPool):
                # The input is not negative: padding with zeros changes no maximum and gets no gradient.
                x = tf.nn.max_pool2d(
                    _padded(x, layer.padding, layer.padding), layer.kernel, layer.stride, "VALID"
                )
        return x

    def _convolved(self, weights: Weights, layer: Conv, x: Tensor) -> Tensor:
        """A convolution with bias."""
        return self._convolution(x, weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"], layer)

    def _convolution(self, x: Tensor, kernel: Tensor, bias: Tensor, layer: Conv) -> Tensor:
        # "SAME" would pad strided convolutions on one side only.
        x = _padded(x, *layer.padding)
        x = tf.nn.conv2d(x, self._framework.compute(kernel), layer.stride, "VALID")
        return tf.nn.bias_add(x, self._framework.compute(bias))

    def _box_head(
        self, weights: Weights, table: Tensor, c: regions.Constants, rois: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores [batch, k, classes] and boxes [batch, k, 4 classes] of ``rois`` [batch, k, 4]."""
        index, weight = regions.taps(self.ops, c, self._dims, rois)
        pooled = tf.reduce_sum(tf.gather(table, index) * weight[..., None], axis=-2)
        count, each = rois.shape[0], rois.shape[1]
        x = tf.reshape(tf.transpose(pooled, (0, 1, 3, 2)), (count * each, -1))
        hidden0, hidden1, score, box = spec.head(self._dims)
        x = tf.nn.relu(self._multiplied(weights, hidden0, self._framework.compute(x)))
        x = tf.nn.relu(self._multiplied(weights, hidden1, x))
        found = (tf.reshape(self._multiplied(weights, layer, x), (count, each, -1)) for layer in (score, box))
        scores, moves = (tf.cast(part, self._framework.dtype) for part in found)
        return scores, moves

    def _multiplied(self, weights: Weights, layer: layers.Dense, x: Tensor) -> Tensor:
        """A fully connected layer with bias."""
        kernel, bias = weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"]
        compute = self._framework.compute
        return tf.nn.bias_add(tf.matmul(x, compute(kernel)), compute(bias))


def _padded(x: Tensor, rows: int, columns: int) -> Tensor:
    return tf.pad(x, ((0, 0), (rows, rows), (columns, columns), (0, 0))) if rows or columns else x


def _doubled(x: Tensor) -> Tensor:
    """Nearest-neighbour upsampling by two."""
    return tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)
