"""The networks of Faster R-CNN in JAX: backbone, feature pyramid, region proposals and box head.

Weights have the layout of :func:`suite.common.channels_last.stored`: kernels [height, width, inputs,
outputs], matrices [inputs, outputs].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suite.common import layers as network_layers
from suite.frameworks.jax import layers
from suite.frameworks.jax.framework import Batch, Framework, Tensor
from suite.frameworks.jax.pair import Weights
from suite.workloads.faster_rcnn import losses, regions, spec
from suite.workloads.faster_rcnn.backbone import Norms
from suite.workloads.faster_rcnn.jax_ops import Ops
from suite.workloads.faster_rcnn.tables import tables


class Model:
    """Losses and detections of a batch, pure functions of ``weights`` by canonical name and the batch.

    A batch has ``images`` uint8 [batch, height, width, 3] of one of the specification's shapes, ``boxes``
    [batch, objects, 4] in pixels, ``labels`` (0: padding), ``sizes`` [batch, 2] and ``turns`` [batch, 2].
    """

    def __init__(self, dims: spec.Dimensions, framework: Framework, norms: Norms) -> None:
        self._dims, self._framework = dims, framework
        self.ops = Ops(framework.dtype)
        backbone = spec.backbone(dims)
        self._parts = [network_layers.folded(part) for part in backbone]
        # Scale and shift of the normalisation behind each convolution of the backbone.
        self._norms = {
            conv.name: norms[norm.name] for part in backbone for conv, norm in network_layers.normalised(part)
        }
        self._mean, self._scale = (
            np.array([float(part) for part in parts], framework.dtype) for parts in (spec.MEAN, spec.SCALE)
        )
        self._tables = {shape: tables(dims, *shape) for shape in dims.shapes}

    def loss(self, weights: Weights, batch: Batch) -> Tensor:
        """The sum of the four losses, a scalar."""
        o, dims, c = self.ops, self._dims, self._constants(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        truth = regions.truth_of(o, batch)
        anchors = regions.choose_anchors(o, c, dims, truth)
        cut_off = lax.stop_gradient(logits), lax.stop_gradient(deltas)
        found = regions.proposals(o, c, dims, True, *cut_off, truth.sizes)
        rois, chosen = regions.choose_regions(o, c, dims, found, truth)
        scores, moves = self._box_head(weights, table, c, rois)
        region_loss = losses.region_losses(o, dims, scores, moves, chosen)
        return losses.proposal_losses(o, logits, deltas, anchors) + region_loss

    def detect(self, weights: Weights, batch: Batch) -> Tensor:
        """Detections [batch, n, 6]: see :func:`regions.detections`."""
        o, dims, c = self.ops, self._dims, self._constants(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        found = regions.proposals(o, c, dims, False, logits, deltas, batch["sizes"])
        scores, moves = self._box_head(weights, table, c, found[0])
        return regions.detections(o, dims, found, scores, moves, batch["sizes"])

    def raw(self, weights: Weights, batch: Batch) -> Tensor:
        """All outputs of the networks in training, flattened: scores and boxes of anchors and regions."""
        o, dims, c = self.ops, self._dims, self._constants(batch)
        logits, deltas, table = self._features_and_proposals(weights, batch["images"])
        truth = regions.truth_of(o, batch)
        found = regions.proposals(o, c, dims, True, logits, deltas, truth.sizes)
        rois, _ = regions.choose_regions(o, c, dims, found, truth)
        parts = (logits, deltas, *self._box_head(weights, table, c, rois))
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def _constants(self, batch: Batch) -> regions.Constants:
        _, height, width, _ = batch["images"].shape
        made, dtype = self._tables[height, width], self._framework.dtype
        anchors, order = (jnp.asarray(values, dtype) for values in (made.anchors, made.order))
        return regions.Constants(made.grids, made.levels, anchors, order)

    def _features_and_proposals(self, weights: Weights, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [batch, anchors] and boxes [.., 4] of anchors, and the pooled levels as rows of channels."""
        dtype, count, channels = self._framework.dtype, images.shape[0], self._dims.channels
        pixels = layers.pixels(images, self._mean, self._scale, self._framework.compute_dtype)
        found = self._pyramid(weights, pixels)
        self._framework.observed.note(activations=found[0])
        scores, moves = [], []
        hidden, score, box = spec.proposer(self._dims)
        for level in found:
            here = jax.nn.relu(_computed(hidden, weights, level))
            scores.append(_computed(score, weights, here).reshape(count, -1))
            moves.append(_computed(box, weights, here).reshape(count, -1, 4))
        logits = jnp.concatenate(scores, axis=1).astype(dtype)
        deltas = jnp.concatenate(moves, axis=1).astype(dtype)
        # Gradients of overlapping regions are summed in the type of the parameters.
        pooled = [level.reshape(count, -1, channels).astype(dtype) for level in found[: spec.POOLED_LEVELS]]
        return logits, deltas, jnp.concatenate(pooled, axis=1).reshape(-1, channels)

    def _pyramid(self, weights: Weights, x: Tensor) -> list[Tensor]:
        """The five levels, finest first. No gradient reaches the frozen stages: their weights have none."""
        run = layers.Pass(self._folded(weights))
        found: list[Tensor] = []
        for part in self._parts:
            x = layers.compute(part, x, run)
            found.append(x)
        pairs = zip(spec.laterals(self._dims), found[1:], strict=True)
        inner = [_computed(layer, weights, x) for layer, x in pairs]
        for level in reversed(range(len(inner) - 1)):
            inner[level] += _doubled(inner[level + 1])
        outer = zip(spec.smoothers(self._dims), inner, strict=True)
        smooth = [_computed(layer, weights, x) for layer, x in outer]
        return [*smooth, smooth[-1][:, ::2, ::2]]

    def _folded(self, weights: Weights) -> Weights:
        """The backbone's kernels times the normalisations' scales, in the type of the parameters; shifts."""
        found, dtype = {}, self._framework.dtype
        for name, (scale, shift) in self._norms.items():
            found[f"{name}.weight"] = weights[f"{name}.weight"].astype(dtype) * jnp.asarray(scale, dtype)
            found[f"{name}.bias"] = jnp.asarray(shift, dtype)
        return found

    def _box_head(
        self, weights: Weights, table: Tensor, c: regions.Constants, rois: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores [batch, k, classes] and boxes [batch, k, 4 classes] of ``rois`` [batch, k, 4]."""
        index, weight = regions.taps(self.ops, c, self._dims, rois)
        pooled = jnp.sum(table[index] * weight[..., None], axis=-2)
        count, each = rois.shape[:2]
        x = self._framework.compute(pooled.transpose(0, 1, 3, 2).reshape(count * each, -1))
        hidden0, hidden1, score, box = spec.head(self._dims)
        x = jax.nn.relu(_computed(hidden0, weights, x))
        x = jax.nn.relu(_computed(hidden1, weights, x))
        found = (_computed(layer, weights, x).reshape(count, each, -1) for layer in (score, box))
        scores, moves = (part.astype(self._framework.dtype) for part in found)
        return scores, moves


def _computed(layer: network_layers.Layer, weights: Weights, x: Tensor) -> Tensor:
    """The output of one layer, in the type of ``x``."""
    return layers.compute((layer,), x, layers.Pass(weights))


def _doubled(x: Tensor) -> Tensor:
    """Nearest-neighbour upsampling by two."""
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
