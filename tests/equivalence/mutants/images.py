"""Mistakes in an image classifier that the equivalence test must notice, as patches of the PyTorch pair.

:func:`mutants` gives those that a network can have: each needs the layers that it is about.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from suite import workloads
from suite.common import folding, layers
from suite.frameworks import base as neutral_base
from suite.frameworks.pytorch import layers as computed
from suite.frameworks.pytorch import optimisers
from suite.frameworks.pytorch import pair as base
from tests.equivalence.mutants.common import Mutant, hyper_mutant, patch

_LAYERS, _residual = dict(computed._LAYERS), computed._residual
_specification, _pixels = workloads.specification, computed.pixels
_differentiate = base.BasePair.differentiate_and_exchange
_fold, _clip = folding.fold, optimisers.clip_by_global_norm


def layer_mutant(kind: type, change: Callable[[Any, Any, Any], Any]) -> Mutant:
    """Layers of ``kind`` computed by ``change(layer, x, run)``."""

    @contextlib.contextmanager
    def mutant() -> Iterator[dict[str, str]]:
        with mock.patch.dict(computed._LAYERS, {kind: change}):
            yield {}

    return mutant


def network_mutant(change: Callable[[Any], Any]) -> Mutant:
    """Another network with the same parameters: ``change`` replaces each layer."""

    def rewritten(network: Sequence[Any]) -> Any:
        found = []
        for layer in network:
            if isinstance(layer, layers.Concat):
                layer = layers.Concat(tuple(rewritten(branch) for branch in layer.branches))
            elif isinstance(layer, layers.Residual):
                layer = layers.Residual(rewritten(layer.body), rewritten(layer.shortcut))
            found.append(change(layer))
        return tuple(found)

    def mutated(name: str) -> Any:
        spec: Any = _specification(name)
        return replace(spec, network=lambda dims: rewritten(spec.network(dims)))

    return patch(neutral_base, "specification", mutated)


class NoUpdate(optimisers.Momentum):
    """An optimiser that does nothing."""

    def update(self, gradients: Any) -> None:
        """Do nothing."""


class RateInVelocity(optimisers.Momentum):
    """TensorFlow's and MXNet's formula: ``v = momentum * v - rate * g; w += v``."""

    @torch.no_grad()
    def update(self, gradients: Any) -> None:
        """Apply one update."""
        for at, (weight, velocity) in enumerate(zip(self.parameters, self.state, strict=True)):
            decay = self._decay if at in self._decayed else 0.0
            velocity.mul_(self._momentum).sub_(self._rate * (gradients[at] + decay * weight))
            weight.add_(velocity)


class Decoupled(optimisers.Momentum):
    """Weight decay beside the velocity, as in Keras and AdamW."""

    @torch.no_grad()
    def update(self, gradients: Any) -> None:
        """Apply one update."""
        for at in self._decayed:
            self.parameters[at].mul_(1 - self._rate * self._decay)
        kept, self._decay = self._decay, 0.0
        super().update(gradients)
        self._decay = kept


def _one_zero(self: Any, loss: Any) -> Any:
    return [g * 0 if at == 2 else g for at, g in enumerate(_differentiate(self, loss))]


def _clip_by_value(gradients: Any, limit: float) -> Any:
    return [gradient.clamp(-limit / 100, limit / 100) for gradient in gradients], _clip(gradients, limit)[1]


def _colours_swapped(images: Any, *rest: Any) -> Any:
    return _pixels(images.flip(-1), *rest)


def _unbiased(layer: Any, x: Any, run: Any) -> Any:
    found = _LAYERS[layers.BatchNorm](layer, x, run)
    if run.running is None:
        count = x.numel() / x.shape[1]
        run.seen[f"{layer.name}.variance"] = run.seen[f"{layer.name}.variance"] * (count / (count - 1))
    return found


def _asymmetric(layer: Any, x: Any, run: Any) -> Any:
    """TensorFlow's SAME: of an even number of rows to add, half; of an odd one, the larger part below."""
    if layer.stride == 1 or layer.padding == (0, 0):
        return _LAYERS[layers.Conv](layer, x, run)
    (height, width), stride = layer.kernel, layer.stride
    edges: list[int] = []
    for side, kernel in ((x.shape[3], width), (x.shape[2], height)):
        needed = max(0, (-(-side // stride) - 1) * stride + kernel - side)
        edges += [needed // 2, needed - needed // 2]
    return _LAYERS[layers.Conv](replace(layer, padding=(0, 0)), F.pad(x, edges), run)


def _without_padding(layer: Any, x: Any, run: Any) -> Any:
    return F.avg_pool2d(x, layer.kernel, layer.stride, layer.padding, count_include_pad=False)


def _no_shortcut(layer: Any, x: Any, x_copy: Any, run: Any, twice: Any) -> Any:
    if layer.body[0].name != "stage2.1.0.conv":
        return _residual(layer, x, x_copy, run, twice)
    y = F.relu(computed.compute(layer.body, x, run))
    return y, y


def _no_last_branch(layer: Any, x: Any, run: Any) -> Any:
    parts = [computed.compute(branch, x, run) for branch in layer.branches]
    return torch.cat((*parts[:-1], parts[-1] * 0), dim=1)


def _stride_on_the_first(layer: Any) -> Any:
    if not isinstance(layer, layers.Residual):
        return layer
    first: Any
    first, *rest = layer.body
    moved = [replace(part, stride=1) if isinstance(part, layers.Conv) else part for part in rest]
    strides = [part.stride for part in rest if isinstance(part, layers.Conv)]
    return layers.Residual((replace(first, stride=max(strides)), *moved), layer.shortcut)


def _channels_fastest(layer: Any, x: Any, run: Any) -> Any:
    return x.permute(0, 2, 3, 1).flatten(1)


def _no_bias(layer: Any, x: Any, run: Any) -> Any:
    return F.linear(x, run.weights[f"{layer.name}.weight"], run.weights[f"{layer.name}.bias"] * 0)


def _change(kind: type, **changes: Any) -> Mutant:
    def changed(layer: Any) -> Any:
        new: Any = replace(layer, **changes) if isinstance(layer, kind) else layer  # type: ignore[type-var]
        return new

    return network_mutant(changed)


def _fold_without_epsilon(network: Any, weights: Any, statistics: Any) -> Any:
    plain = [replace(norm, epsilon="0") for _, norm in layers.normalised(network)]
    pairs = [(conv, norm) for (conv, _), norm in zip(layers.normalised(network), plain, strict=True)]
    with mock.patch.object(layers, "normalised", return_value=pairs):
        return _fold(network, weights, statistics)


def _names(network: Any) -> frozenset[str]:
    return frozenset(parameter.name for parameter in layers.parameters(network))


ALWAYS: dict[str, Mutant] = {
    "no-optimiser": patch(base, "Momentum", NoUpdate),
    "rate-in-velocity": patch(base, "Momentum", RateInVelocity),
    "rate-not-dropped": hyper_mutant(rate_drops=""),
    "no-clipping": hyper_mutant(clip="0"),
    "clipping-by-value": patch(base, "clip_by_global_norm", _clip_by_value),
    "decay-decoupled": patch(base, "Momentum", Decoupled),
    "decay-on-everything": patch(layers, "decayed", _names),
    "no-smoothing": hyper_mutant(smoothing="0"),
    "one-gradient-zero": patch(base.BasePair, "differentiate_and_exchange", _one_zero),
    "colours-swapped": patch(computed, "pixels", _colours_swapped),
    "bias-dropped": layer_mutant(layers.Dense, _no_bias),
}

# Mutants of a layer, by the kind of layer that the network must have.
_OF: dict[type, dict[str, Mutant]] = {
    layers.BatchNorm: {
        "epsilon-times-10": network_mutant(
            lambda layer: (
                replace(layer, epsilon=str(10 * float(layer.epsilon)))
                if isinstance(layer, layers.BatchNorm)
                else layer
            )
        ),
        "statistics-unbiased": layer_mutant(layers.BatchNorm, _unbiased),
        "statistics-kept": patch(computed.Statistics, "update", lambda self, seen: None),
        "statistics-slower": _change(layers.BatchNorm, decay="0.71"),
        "folded-without-epsilon": patch(folding, "fold", _fold_without_epsilon),
    },
    layers.Residual: {
        "residual-removed": patch(computed, "_residual", _no_shortcut),
        "stride-on-the-first": network_mutant(_stride_on_the_first),
    },
    layers.Concat: {"branch-removed": layer_mutant(layers.Concat, _no_last_branch)},
    layers.AveragePool: {"average-without-padding": layer_mutant(layers.AveragePool, _without_padding)},
    layers.Flatten: {"flattened-channels-fastest": layer_mutant(layers.Flatten, _channels_fastest)},
    layers.Dropout: {"dropout-on": hyper_mutant(dropout="0.5")},
}


def mutants(workload: str) -> dict[str, Mutant]:
    """The mistakes that the network of ``workload`` can have, by name."""
    spec: Any = _specification(workload)
    every = list(layers.walk(spec.network(spec.SIZES["mini"])))
    found = dict(ALWAYS)
    for kind, some in _OF.items():
        if any(isinstance(layer, kind) for layer in every):
            found |= some
    if any(isinstance(layer, layers.Conv) and layer.stride > 1 and layer.padding[0] for layer in every):
        found["padding-asymmetric"] = layer_mutant(layers.Conv, _asymmetric)
    if any(isinstance(layer, layers.MaxPool) and layer.ceil and layer.stride > 1 for layer in every):
        found["pools-rounded-down"] = _change(layers.MaxPool, ceil=False)
    return found
