"""Faster R-CNN with a feature pyramid as a user would write it in JAX, with the constants of torchvision.

Everything has a fixed size: lists of boxes are padded, and the stages between the networks are functions of
one image under ``jax.vmap``.

Difference to the suite: overlaps and scores are compared as they are, not rounded to a grid.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from peers import jax_boxes as boxes
from peers.jax_common import Batch, Weights, plain, start
from peers.jax_networks import Model, max_pool
from peers.plain import Plain
from suite.contract import Job
from suite.workloads.faster_rcnn import spec

POOLED = spec.POOLED_LEVELS


class Detector(Model):
    """The networks. The stem and the first stage are frozen; the normalisations are scales and shifts."""

    def __init__(self, dims: spec.Dimensions, weights: Weights, fixed: Weights) -> None:
        super().__init__(weights, fixed, jax.random.key(1), False, 0.0)
        self.dims = dims
        self.scales: dict[str, Any] = {}  # shape and value of the scales and shifts that are not there

    def fixed(self, x: Any, scale: float = 1.0) -> Any:
        """A frozen normalisation."""
        name, shape = self._name("fixed"), x.shape[3:]
        if f"{name}.scale" not in self.statistics:
            self.scales |= {f"{name}.scale": (shape, scale), f"{name}.shift": (shape, 0.0)}
            return x
        scales, shifts = (self.statistics[f"{name}.{part}"].astype(x.dtype) for part in ("scale", "shift"))
        return x * scales + shifts

    def bottleneck(self, x: Any, width: int, stride: int, projected: bool) -> Any:
        """A block of ResNet v1.5."""
        shortcut = self.fixed(self.conv(x, 4 * width, 1, stride)) if projected else x
        y = jax.nn.relu(self.fixed(self.conv(x, width)))
        y = jax.nn.relu(self.fixed(self.conv(y, width, 3, stride, 1)))
        return jax.nn.relu(self.fixed(self.conv(y, 4 * width), spec.BLOCK_SCALE) + shortcut)

    def pyramid(self, x: Any) -> list[Any]:
        """The five levels, finest first."""
        x = max_pool(jax.nn.relu(self.fixed(self.conv(x, self.dims.width, 7, 2, 3))), 3, 2, 1)
        stages = []
        for stage, count in enumerate(self.dims.blocks):
            for block in range(count):
                x = self.bottleneck(x, self.dims.width << stage, 2 if stage and not block else 1, not block)
            x = x if stage else lax.stop_gradient(x)
            stages.append(x)
        width = self.dims.channels
        inner = [self.conv(one, width, bias=True, scale=one.shape[3] ** -0.5) for one in stages]
        for level in (2, 1, 0):
            inner[level] += jnp.repeat(jnp.repeat(inner[level + 1], 2, axis=1), 2, axis=2)
        levels = [self.conv(one, width, 3, bias=True, scale=(9 * width) ** -0.5) for one in inner]
        return [*levels, levels[-1][:, ::2, ::2]]

    def proposed(self, levels: list[Any]) -> tuple[Any, Any]:
        """Scores [B, n] and moves [B, n, 4] of the anchors, in fp32."""
        scores, moves, first = [], [], self._layers
        for level in levels:
            self._layers = first  # all levels share the weights
            hidden = jax.nn.relu(self.conv(level, self.dims.channels, 3, bias=True, scale=0.01))
            scores.append(self.conv(hidden, 3, bias=True, scale=0.01).reshape(len(level), -1))
            moves.append(self.conv(hidden, 12, bias=True, scale=0.01).reshape(len(level), -1, 4))
        return tuple(jnp.concatenate(parts, axis=1).astype(jnp.float32) for parts in (scores, moves))

    def head(self, features: Any) -> tuple[Any, Any]:
        """Scores [B, k, classes] and moves [.., classes, 4] of pooled ``features`` [B, k, bins, bins, C]."""
        (batch, count), classes = features.shape[:2], self.dims.classes
        x = features.reshape(batch * count, -1)
        for _ in range(2):
            x = jax.nn.relu(self.dense(x, self.dims.hidden))
        scores, moves = self.dense(x, classes), self.dense(x, 4 * classes)
        shapes = (batch, count, classes), (batch, count, classes, 4)
        return tuple(
            part.astype(jnp.float32).reshape(shape)
            for part, shape in zip((scores, moves), shapes, strict=True)
        )


class Stages:
    """The stages between the networks, for one image of a batch of ``height`` and ``width``."""

    def __init__(self, dims: spec.Dimensions, height: int, width: int, training: bool) -> None:
        self._dims, grids = dims, dims.grids(height, width)
        self.anchors = boxes.anchors(grids, dims.anchors, height, width)
        self._counts = [3 * rows * columns for rows, columns in grids]
        self._before, self._after = (pair[0 if training else 1] for pair in (dims.before, dims.after))

    def proposals(self, scores: Any, moves: Any, size: Any) -> tuple[Any, Any]:
        """The best boxes [n, 4] that survive suppression within their level, and which exist."""
        found, start = [], 0
        for count in self._counts:
            best, index = lax.top_k(scores[start : start + count], min(self._before, count))
            more = self._before - len(best)  # small levels are padded, so that all are one suppression
            best, index = jnp.pad(best, (0, more), constant_values=-jnp.inf), jnp.pad(index, (0, more))
            index = index + start
            found.append((boxes.decode(moves[index], jnp.asarray(self.anchors)[index], size), best))
            start += count
        rois, best = (jnp.stack(parts) for parts in zip(*found, strict=True))
        wide = jnp.min(rois[..., 2:] - rois[..., :2], axis=-1) >= 1e-3
        alive = jax.vmap(lambda one, real: boxes.surviving(one, real, spec.PROPOSAL_NMS))(
            rois, wide & jnp.isfinite(best)
        )
        values, index = lax.top_k(jnp.where(alive, best, -jnp.inf).reshape(-1), self._after)
        return rois.reshape(-1, 4)[index], jnp.isfinite(values)

    def sampled_anchors(self, key: Any, truth: Any, labels: Any) -> tuple[Any, ...]:
        """Indices of the sampled anchors, which exist, which are objects, and their targets."""
        overlap = jnp.where(labels > 0, boxes.overlaps(jnp.asarray(self.anchors), truth), -1)
        best, nearest = jnp.max(overlap, axis=1), jnp.max(overlap, axis=0)
        positive = best >= spec.PROPOSAL_POSITIVE
        positive |= jnp.any((overlap == nearest) & (overlap > 0), axis=1)  # the nearest anchors of an object
        negative = (best < spec.PROPOSAL_NEGATIVE) & ~positive
        count = self._dims.sampled
        index, valid, is_object = boxes.sample(key, positive, negative, count, count // 2)
        matched = truth[jnp.argmax(overlap[index], axis=1)]
        return index, valid, is_object, boxes.encode(matched, jnp.asarray(self.anchors)[index])

    def sampled_regions(self, key: Any, found: tuple[Any, Any], truth: Any, labels: Any) -> tuple[Any, ...]:
        """Sampled regions, which exist, their classes (0: background) and targets."""
        rois = jnp.concatenate((found[0], truth))
        there = jnp.concatenate((found[1], labels > 0))
        overlap = jnp.where(labels > 0, boxes.overlaps(rois, truth), -1)
        enough, match = jnp.max(overlap, axis=1) >= spec.REGION_POSITIVE, jnp.argmax(overlap, axis=1)
        count = self._dims.regions
        index, valid, is_object = boxes.sample(key, enough & there, ~enough & there, count, count // 4)
        targets = boxes.encode(truth[match[index]], rois[index]) * boxes.BOX_WEIGHTS
        return rois[index], valid, labels[match[index]] * is_object, targets

    def detections(self, found: tuple[Any, Any], scores: Any, moves: Any, size: Any) -> Any:
        """Detections [n, 6], best first: box, score, class; zeros behind the last."""
        rois, there = found
        classes = self._dims.classes - 1
        chance = jax.nn.softmax(scores)[:, 1:] * there[:, None]
        best, index = lax.top_k(chance.reshape(-1), self._dims.candidates)
        moved = moves[:, 1:].reshape(-1, 4)[index] / boxes.BOX_WEIGHTS
        near, label = boxes.decode(moved, rois[index // classes], size), index % classes + 1
        real = (best > spec.LEAST_SCORE) & (jnp.min(near[:, 2:] - near[:, :2], axis=1) >= 1e-2)
        apart = near + (label * (jnp.max(size) + 1))[:, None]  # boxes of two classes do not overlap
        alive = boxes.surviving(apart, real, spec.DETECTION_NMS)
        values, kept = lax.top_k(jnp.where(alive, best, 0), self._dims.detections)
        parts = near[kept], values[:, None], label[kept][:, None].astype(jnp.float32)
        return jnp.concatenate(parts, axis=1) * (values > 0)[:, None]


def smooth_l1(difference: Any) -> Any:
    """Smooth L1, summed over the last axis."""
    size = jnp.abs(difference)
    near = size**2 * (0.5 / spec.BETA)
    return jnp.sum(jnp.where(size < spec.BETA, near, size - 0.5 * spec.BETA), axis=-1)


def mean(losses: Any, valid: Any) -> Any:
    """The mean over the valid samples of the batch."""
    return jnp.sum(losses * valid) / jnp.maximum(jnp.sum(valid), 1)


def initial(dims: spec.Dimensions) -> tuple[Weights, Weights]:
    """Weights, and scales and shifts of the normalisations."""
    model = Detector(dims, {}, {})

    def traced(images: Any, features: Any) -> Any:
        return model.proposed(model.pyramid(images)), model.head(features)

    sizes = (1, *dims.shapes[0], 3), (1, 1, dims.pool, dims.pool, dims.channels)
    jax.eval_shape(traced, *(jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes))
    return model.initial(), {name: jnp.full(*each) for name, each in model.scales.items()}


def frozen_names(dims: spec.Dimensions) -> list[str]:
    """The kernels of the stem and of the first stage: the first convolutions, each with a normalisation."""
    convolutions = 1 + 3 * dims.blocks[0] + 1
    return [f"conv{1 + 2 * number}.kernel" for number in range(convolutions)]


def make(job: Job) -> Plain:
    """Training by SGD with momentum, or detections."""
    dtype, training = start(job), job.key.phase == "train"
    dims = spec.dimensions(job.key.scale, job.key.variant)
    stages = Stages(dims, *dims.shapes[0], training)
    weights, fixed = initial(dims)
    mean_pixel, scale = (jnp.array([float(value) for value in each]) for each in (spec.MEAN, spec.SCALE))
    momentum, decay, frozen = job.number("momentum"), job.number("weight_decay"), frozen_names(dims)

    def pooled(levels: list[Any], rois: Any) -> Any:
        wide = [level.astype(jnp.float32) for level in levels[:POOLED]]
        strides = spec.STRIDES[:POOLED]
        found = jax.vmap(lambda here, one: boxes.pooled(here, one, strides, dims.canonical, dims.pool))(
            wide, rois
        )
        return found.astype(dtype)

    def features(model: Detector, images: Any) -> tuple[list[Any], Any, Any]:
        levels = model.pyramid(((images.astype(jnp.float32) / 255 - mean_pixel) / scale).astype(dtype))
        return levels, *model.proposed(levels)

    def loss_of(trained: Weights, held: Weights, fixed: Weights, batch: Batch, key: Any) -> Any:
        model, truth, labels = Detector(dims, trained | held, fixed), batch["boxes"], batch["labels"]
        levels, logits, moves = features(model, batch["images"])
        keys = jax.random.split(key, (2, len(truth)))
        index, valid, is_object, targets = jax.vmap(stages.sampled_anchors)(keys[0], truth, labels)
        score = jnp.take_along_axis(logits, index, axis=1)
        entropy = jax.nn.softplus(score) - is_object * score
        apart = jnp.take_along_axis(moves, index[..., None], axis=1) - targets
        loss = mean(entropy + smooth_l1(apart) * is_object, valid)
        cut_off = lax.stop_gradient((logits, moves))
        found = jax.vmap(stages.proposals)(*cut_off, batch["sizes"])
        rois, valid, classes, targets = jax.vmap(stages.sampled_regions)(keys[1], found, truth, labels)
        scores, moves = model.head(pooled(levels, rois))
        entropy = -jnp.take_along_axis(jax.nn.log_softmax(scores), classes[..., None], axis=2)[..., 0]
        chosen = jnp.take_along_axis(moves, classes[..., None, None], axis=2)[:, :, 0]
        return loss + mean(entropy + smooth_l1(chosen - targets) * (classes > 0), valid)

    def train(weights: Weights, carried: Any, batch: Batch) -> Any:
        velocities, fixed, key = carried
        key, used = jax.random.split(key)
        held = {name: weights[name] for name in frozen}
        trained = {name: weight for name, weight in weights.items() if name not in held}
        loss, gradients = jax.value_and_grad(loss_of)(trained, held, fixed, batch, used)
        velocities = jax.tree.map(
            lambda velocity, slope, weight: momentum * velocity + slope + decay * weight,
            *(velocities, gradients, trained),
        )
        trained = jax.tree.map(lambda weight, velocity: weight - 1e-3 * velocity, trained, velocities)
        return trained | held, (velocities, fixed, key), loss

    def infer(weights: Weights, fixed: Weights, batch: Batch) -> Any:
        model = Detector(dims, weights, fixed)
        levels, logits, moves = features(model, batch["images"])
        found = jax.vmap(stages.proposals)(logits, moves, batch["sizes"])
        scores, moves = model.head(pooled(levels, found[0]))
        return fixed, jax.vmap(stages.detections)(found, scores, moves, batch["sizes"])

    if training:
        velocities = {name: jnp.zeros_like(one) for name, one in weights.items() if name not in frozen}
        return plain(weights, (velocities, fixed, jax.random.key(2)), train, job)
    return plain({name: weight.astype(dtype) for name, weight in weights.items()}, fixed, infer, job)
