"""Mistakes in Faster R-CNN that the equivalence test must notice, as patches of the PyTorch pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from suite.frameworks.pytorch import optimisers
from suite.frameworks.pytorch import pair as base
from suite.workloads.faster_rcnn import boxes, losses, regions, spec
from suite.workloads.faster_rcnn import pytorch_model as model
from tests.equivalence.mutants.common import Mutant, hyper_mutant, patch

_conv2d, _doubled = F.conv2d, model.doubled
_match, _sample, _suppress = boxes.match, boxes.sample, boxes.suppress
_axis_taps, _taps, _detections = regions._axis_taps, regions.taps, regions.detections
_multiplied, _loss, _differentiate = (
    model.multiplied,
    model.Model.loss,
    base.BasePair.differentiate_and_exchange,
)


class NoUpdate(optimisers.Momentum):
    """An optimiser that does nothing."""

    def update(self, gradients: Any) -> None:
        """Do nothing."""


class RateInVelocity(optimisers.Momentum):
    """Momentum of TensorFlow and MXNet: a change of the rate does not scale the velocity."""

    @torch.no_grad()
    def update(self, gradients: Any) -> None:
        """Apply one update."""
        for parameter, velocity, gradient in zip(self.parameters, self.state, gradients, strict=True):
            decayed = gradient + self._decay * parameter
            velocity.mul_(self._momentum).add_(decayed * self._rate)
            parameter.sub_(velocity)


def gradient_mutant(change: Callable[[Any, list[Any]], list[Any]]) -> Mutant:
    """``change(pair, gradients)`` after they were computed."""

    def mutated(self: Any, loss: Any) -> Any:
        return change(self, _differentiate(self, loss))

    return patch(base.BasePair, "differentiate_and_exchange", mutated)


def constant(name: str, value: Any) -> Mutant:
    """Another constant in the specification, only for PyTorch."""
    return patch(spec, name, value)


def _asymmetric(x: Any, weight: Any, bias: Any, stride: Any, padding: Any) -> Any:
    """Strided convolutions padded on one side, as with "SAME"."""
    if stride == 2 and padding == (1, 1):
        return _conv2d(F.pad(x, (0, 1, 0, 1)), weight, bias, 2)
    return _conv2d(x, weight, bias, stride, padding)


def _no_nearest(o: Any, *rest: Any) -> Any:
    overlap, best, match = _match(o, *rest)
    return overlap * 0, best, match


def _any_share(o: Any, positive: Any, negative: Any, order: Any, count: int, most: int) -> Any:
    del most
    return _sample(o, positive, negative, order, count, count)


def _by_index(o: Any, c: Any, numbers: Any, turn: Any) -> Any:
    del o, c
    return numbers + 1 + turn * 0


def _one_round(*arguments: Any) -> Any:
    o, overlap, score, there, threshold, _ = arguments
    return _suppress(o, overlap, score, there, threshold, 1)


def _aligned(o: Any, pool: int, low: Any, high: Any, size: Any) -> Any:
    return _axis_taps(o, pool, low - 0.5, high - 0.5, size)


def _coarser(o: Any, c: Any, dims: Any, rois: Any) -> Any:
    return _taps(o, c, replace(dims, canonical=dims.canonical // 2), rois)


def _channels_last(weights: Any, layer: Any, x: Any) -> Any:
    if layer.name == "head.hidden0":
        channels = spec.dimensions("mini", "r50-fpn").channels
        x = x.unflatten(2, (channels, -1)).transpose(2, 3).flatten(2)
    return _multiplied(weights, layer, x)


def _sum(o: Any, values: Any, counts: Any) -> Any:
    del o
    return (values * counts).sum()


def _scaled(factor: float) -> Mutant:
    def mutated(self: Any, weights: Any, batch: Any) -> Any:
        changed = {**weights, "fpn.lateral1.weight": weights["fpn.lateral1.weight"] * factor}
        return _loss(self, changed, batch)

    return patch(model.Model, "loss", mutated)


def _one_zero(self: Any, gradients: list[Any]) -> list[Any]:
    names = zip(self.trained, gradients, strict=True)
    return [gradient * 0 if name == "rpn.box.weight" else gradient for name, gradient in names]


def _larger_scores(*given: Any) -> Any:
    return _detections(*given) * torch.tensor([1, 1, 1, 1, 1 + 1e-6, 1], dtype=torch.float64)


_SCALES = spec.norm_scales(spec.dimensions("mini", "r50-fpn"))

MUTANTS: dict[str, Mutant] = {
    "no-optimiser": patch(base, "Momentum", NoUpdate),
    "rate-in-velocity": patch(base, "Momentum", RateInVelocity),
    "no-weight-decay": hyper_mutant(weight_decay="0"),
    "no-clipping": hyper_mutant(clip="0"),
    "rate-not-dropped": hyper_mutant(rate_drops=""),
    "one-gradient-zero": gradient_mutant(_one_zero),
    "frozen-stage-trained": constant("FROZEN_STAGES", 1),
    "frozen-scales-ignored": patch(spec, "norm_scales", lambda dims: dict.fromkeys(_SCALES, 1.0)),
    "mean-not-subtracted": constant("MEAN", ("0", "0", "0")),
    "padding-asymmetric": patch(F, "conv2d", _asymmetric),
    "top-down-path-removed": patch(model, "doubled", lambda x: _doubled(x) * 0),
    "positive-overlap-0.5": constant("PROPOSAL_POSITIVE", 0.5),
    "negative-overlap-0.05": constant("PROPOSAL_NEGATIVE", 0.05),
    "region-overlap-0.3": constant("REGION_POSITIVE", 0.3),
    "no-nearest-anchor": patch(boxes, "match", _no_nearest),
    "sampled-by-index": patch(regions, "_order", _by_index),
    "any-share-of-positives": patch(boxes, "sample", _any_share),
    "proposals-not-suppressed": patch(boxes, "suppress", lambda o, overlap, score, there, *rest: there),
    "one-round-of-suppression": patch(boxes, "suppress", _one_round),
    "proposal-suppression-0.6": constant("PROPOSAL_NMS", 0.6),
    "detection-suppression-0.7": constant("DETECTION_NMS", 0.7),
    "least-score-0.28": constant("LEAST_SCORE", 0.28),
    "boxes-not-clipped": patch(boxes, "clip", lambda o, found, sizes: found),
    "box-weights-1": constant("BOX_WEIGHTS", (1.0, 1.0, 1.0, 1.0)),
    "beta-1": constant("BETA", 1.0),
    "losses-summed": patch(losses, "_mean", _sum),
    "pooling-aligned": patch(regions, "_axis_taps", _aligned),
    "pooled-from-another-level": patch(regions, "taps", _coarser),
    "pooled-channels-last": patch(model, "multiplied", _channels_last),
    "scores-off-by-1e-6": patch(regions, "detections", _larger_scores),
    "weight-off-by-1e-7": _scaled(1 + 1e-7),
}
