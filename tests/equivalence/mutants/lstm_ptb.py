"""Mistakes in the language model that the equivalence test must notice, as patches of the PyTorch pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from suite.frameworks.pytorch import optimisers
from suite.frameworks.pytorch import pair as base
from suite.frameworks.pytorch.recurrent import lstm
from suite.workloads.lstm_ptb import pytorch as pair
from tests.equivalence.mutants.common import Mutant, hyper_mutant, patch

_layers, _losses = pair.run_layers, pair.token_losses
_cast, _differentiate = pair.Pair.cast, base.BasePair.differentiate_and_exchange
_clip = optimisers.clip_by_global_norm


def weight_mutant(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Mutant:
    """The model computed with changed weights."""

    def mutated(self: Any) -> Any:
        weights = dict(_cast(self))
        return weights | change(weights)

    return patch(pair.Pair, "cast", mutated)


def state_mutant(change: Callable[[Any], Any]) -> Mutant:
    """Each window starts from a changed state."""
    return patch(pair, "run_layers", lambda w, tokens, state, drop: _layers(w, tokens, change(state), drop))


def loss_mutant(factor: Callable[[Any], float]) -> Mutant:
    """Losses times ``factor`` of their steps and rows."""
    return patch(pair, "token_losses", lambda logits, t: _losses(logits, t) * factor(logits.shape))


class Rest(optimisers.Descent):
    """An optimiser that does nothing."""

    def update(self, gradients: Any) -> None:
        """Do nothing."""


class Heavy(optimisers.Momentum):
    """SGD with momentum."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"momentum": "0.9"})


def _without_cell(state: Any) -> Any:
    return torch.stack((state[:, 0], state[:, 1] * 0), dim=1)


def _residual(inputs: Any, *rest: Any) -> Any:
    outputs, last = lstm(inputs, *rest)
    return outputs + inputs, last


def _gates_swapped(weights: dict[str, Any]) -> dict[str, Any]:
    def swap(tensor: Any) -> Any:
        enter, forget, candidate, leave = tensor.chunk(4)
        return torch.cat((enter, candidate, forget, leave))

    return {f"lstm.1.{part}": swap(weights[f"lstm.1.{part}"]) for part in ("input", "hidden", "bias")}


def _forget_bias(weights: dict[str, Any]) -> dict[str, Any]:
    changed = weights["lstm.0.bias"].clone()
    changed[changed.shape[0] // 4 : changed.shape[0] // 2] += 1
    return {"lstm.0.bias": changed}


def _one_layer(weights: Any, tokens: Any, state: Any, dropout: Any) -> Any:
    first, moved = _layers(weights, tokens, state[:1], dropout)
    second, _ = _layers(weights, tokens, state, dropout)
    return first + second * 0, torch.cat((moved, state[1:]))


def _two_biases(weights: dict[str, Any]) -> dict[str, Any]:
    """The same sum, of which both halves are trained."""
    biases = {name: value for name, value in weights.items() if name.startswith("lstm") and "bias" in name}
    return {name: value + (value - value.detach()) for name, value in biases.items()}


def _clip_with_epsilon(gradients: Any, limit: float) -> Any:
    clipped, norm = _clip(gradients, limit)
    return [gradient * (norm / (norm + 1e-6)) for gradient in clipped], norm


def _clip_by_value(gradients: Any, limit: float) -> Any:
    return [gradient.clamp(-limit / 100, limit / 100) for gradient in gradients], _clip(gradients, limit)[1]


def _one_zero(self: Any, loss: Any) -> Any:
    pairs = zip(self.masters, _differentiate(self, loss), strict=True)
    return [gradient * 0 if name == "softmax.bias" else gradient for name, gradient in pairs]


MUTANTS: dict[str, Mutant] = {
    "no-optimiser": patch(base, "Descent", Rest),
    "momentum-added": patch(base, "Descent", Heavy),
    "rate-not-dropped": hyper_mutant(rate_drops=""),
    "rate-not-decayed": hyper_mutant(constant_epochs="100"),
    "decayed-an-epoch-late": hyper_mutant(constant_epochs="3"),
    "no-clipping": hyper_mutant(clip="1e9"),
    "clipping-with-epsilon": patch(base, "clip_by_global_norm", _clip_with_epsilon),
    "clipping-by-value": patch(base, "clip_by_global_norm", _clip_by_value),
    "one-gradient-zero": patch(base.BasePair, "differentiate_and_exchange", _one_zero),
    "mean-over-steps": loss_mutant(lambda shape: 1 / shape[0]),
    "sum-over-rows": loss_mutant(lambda shape: shape[1]),
    "dropout-on": hyper_mutant(dropout="0.5"),
    "state-not-carried": state_mutant(lambda state: state * 0),
    "cell-not-carried": state_mutant(_without_cell),
    "states-of-layers-swapped": state_mutant(lambda state: state.flip(0)),
    "states-of-rows-shifted": state_mutant(lambda state: state.roll(1, dims=3)),
    "state-not-restarted": patch(pair.Pair, "begin_step", lambda self, index: None),
    "gates-swapped": weight_mutant(_gates_swapped),
    "forget-bias-1": weight_mutant(_forget_bias),
    "two-trained-biases": weight_mutant(_two_biases),
    "residual-added": patch(pair, "lstm", _residual),
    "one-layer": patch(pair, "run_layers", _one_layer),
    "softmax-tied": weight_mutant(lambda w: {"softmax.weight": w["softmax.weight"] * 0 + w["embedding"]}),
    "softmax-bias-dropped": weight_mutant(lambda w: {"softmax.bias": w["softmax.bias"] * 0}),
    "embedding-not-trained": weight_mutant(
        lambda w: {"embedding": w["embedding"].detach() + w["embedding"] * 0}
    ),
    "weights-off-by-1e-7": weight_mutant(lambda w: {name: value * (1 + 1e-7) for name, value in w.items()}),
}
