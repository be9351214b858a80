"""Mistakes in GNMT that the equivalence test must notice, as patches of the PyTorch pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from suite.frameworks.pytorch import optimisers
from suite.frameworks.pytorch import pair as base
from suite.workloads.gnmt import pytorch as pair
from suite.workloads.gnmt import pytorch_kernels as kernels
from suite.workloads.gnmt import pytorch_model as model
from tests.equivalence.mutants.common import EpsilonBeforeCorrection, Mutant, NoUpdate, hyper_mutant, patch

_attend, _decode, _lstm = model.attend, model.decode, model.lstm
_cast, _loss, _differentiate = pair.Pair.cast, pair.Pair.loss, base.BasePair.differentiate_and_exchange
_clip, _plain_loss = optimisers.clip_by_global_norm, kernels.plain_loss


def weight_mutant(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Mutant:
    """The model computed with changed weights."""

    def mutated(self: Any) -> Any:
        weights = dict(_cast(self))
        return weights | change(weights)

    return patch(pair.Pair, "cast", mutated)


def lstm_mutant(name: str, change: Callable[[Any, Any], Any]) -> Mutant:
    """``change(outputs, inputs)`` behind the LSTM ``name``; without dropout its inputs are the layer's."""

    def mutated(weights: Any, found: str, inputs: Any) -> Any:
        outputs = _lstm(weights, found, inputs)
        return change(outputs, inputs[..., : outputs.shape[-1]]) if found == name else outputs

    return patch(model, "lstm", mutated)


def _from_encoder_state() -> Mutant:
    """The decoder's first layer starts from the hidden state in which the encoder's last ended."""
    last: list[Any] = []

    def mutated(weights: Any, name: str, inputs: Any) -> Any:
        if name == "decoder.0":
            bias, hidden = weights[f"{name}.bias"], last[-1][None]
            tensors = [weights[f"{name}.input"], weights[f"{name}.hidden"], bias, torch.zeros_like(bias)]
            state = hidden, torch.zeros_like(hidden)
            return torch._VF.lstm(inputs, state, tensors, True, 1, 0.0, True, False, False)[0]  # type: ignore[attr-defined]
        outputs = _lstm(weights, name, inputs)
        last.append(outputs[-1])
        return outputs

    return patch(model, "lstm", mutated)


def _reversed_with_padding(lengths: Any, steps: int) -> Any:
    return torch.arange(steps - 1, -1, -1)[:, None].expand(steps, lengths.shape[0])


def _gates_swapped(weights: dict[str, Any]) -> dict[str, Any]:
    def swap(tensor: Any) -> Any:
        enter, forget, candidate, leave = tensor.chunk(4)
        return torch.cat((forget, enter, candidate, leave))

    return {f"encoder.1.{part}": swap(weights[f"encoder.1.{part}"]) for part in ("input", "hidden", "bias")}


def _forget_bias(weights: dict[str, Any]) -> dict[str, Any]:
    changed = weights["decoder.1.bias"].clone()
    changed[changed.shape[0] // 4 : changed.shape[0] // 2] += 1
    return {"decoder.1.bias": changed}


def _own_table(weights: Any, layers: int, target: Any, *rest: Any) -> Any:
    return _decode({**weights, "embedding": weights["embedding"].detach()}, layers, target, *rest)


def _per_token(self: Any, batch: Any) -> Any:
    return _loss(self, batch) * batch["source"].shape[0] / batch["target_lengths"].sum()


def _clip_with_epsilon(gradients: Any, limit: float) -> Any:
    clipped, norm = _clip(gradients, limit)
    return [gradient * (norm / (norm + 1e-6)) for gradient in clipped], norm


def _clip_by_value(gradients: Any, limit: float) -> Any:
    norm = _clip(gradients, limit)[1]
    return [gradient.clamp(-limit / 100, limit / 100) for gradient in gradients], norm


def _one_zero(self: Any, loss: Any) -> Any:
    pairs = zip(self.masters, _differentiate(self, loss), strict=True)
    return [gradient * 0 if name == "attention.b" else gradient for name, gradient in pairs]


MUTANTS: dict[str, Mutant] = {
    "no-optimiser": patch(base, "Adam", NoUpdate),
    "epsilon-times-10": hyper_mutant(epsilon="1e-7"),
    "epsilon-before-correction": patch(base, "Adam", EpsilonBeforeCorrection),
    "rate-not-dropped": hyper_mutant(rate_drops=""),
    "warmed-up": hyper_mutant(warmup_steps="100"),
    "no-clipping": hyper_mutant(clip="1e9"),
    "clipping-with-epsilon": patch(base, "clip_by_global_norm", _clip_with_epsilon),
    "clipping-by-value": patch(base, "clip_by_global_norm", _clip_by_value),
    "one-gradient-zero": patch(base.BasePair, "differentiate_and_exchange", _one_zero),
    "no-smoothing": hyper_mutant(smoothing="0"),
    "loss-not-divided": patch(pair.Pair, "loss", lambda s, b: _loss(s, b) * b["source"].shape[0]),
    "loss-per-token": patch(pair.Pair, "loss", _per_token),
    "padding-in-loss": patch(
        kernels, "plain_loss", lambda logits, t, c, s: _plain_loss(logits, t, torch.ones_like(c), s)
    ),
    "padding-in-attention": patch(model, "MASKED", 0.0),
    "encoder-residual-removed": lstm_mutant("encoder.3", lambda outputs, inputs: outputs - inputs),
    "encoder-residual-early": lstm_mutant("encoder.1", lambda outputs, inputs: outputs + inputs),
    "decoder-residual-removed": lstm_mutant("decoder.2", lambda outputs, inputs: outputs - inputs),
    "decoder-residual-early": lstm_mutant("decoder.1", lambda outputs, inputs: outputs + inputs),
    "reversed-with-padding": patch(model, "reversed_rows", _reversed_with_padding),
    "backward-not-reversed": patch(model, "reverse", lambda inputs, rows: inputs),
    "decoder-from-encoder-state": _from_encoder_state(),
    "attention-scale-dropped": weight_mutant(lambda w: {"attention.g": w["attention.g"] * 0 + 1}),
    "attention-not-normalised": weight_mutant(
        lambda w: {"attention.g": w["attention.g"] * w["attention.v"].norm()}
    ),
    "attention-bias-moved": weight_mutant(lambda w: {"attention.b": w["attention.b"] + 0.1}),
    "context-of-keys": patch(
        model, "attend", lambda w, m, q, fast: _attend(w, replace(m, outputs=m.keys), q, fast)
    ),
    "context-one-step-late": patch(model, "attend", lambda w, m, q, fast: _attend(w, m, q.roll(1, 0), fast)),
    "context-of-wrong-query": patch(
        model, "attend", lambda w, m, q, fast: _attend(w, m, torch.tanh(q), fast)
    ),
    "gates-swapped": weight_mutant(_gates_swapped),
    "forget-bias-1": weight_mutant(_forget_bias),
    "tables-not-shared": patch(model, "decode", _own_table),
    "classifier-tied": weight_mutant(
        lambda w: {"classifier.weight": w["classifier.weight"] * 0 + w["embedding"]}
    ),
    "classifier-bias-dropped": weight_mutant(lambda w: {"classifier.bias": w["classifier.bias"] * 0}),
    "weights-off-by-1e-7": weight_mutant(lambda w: {name: value * (1 + 1e-7) for name, value in w.items()}),
}
