"""Mistakes in NeuMF that the equivalence test must notice, as patches of the PyTorch pair.

Each is a function without arguments giving a context manager, inside which pairs are built and run; it yields
hyperparameters to change, mostly none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from suite.frameworks.pytorch import optimisers
from suite.frameworks.pytorch import pair as base
from suite.workloads.ncf import pytorch as pair
from suite.workloads.ncf import spec
from tests.equivalence.mutants.common import EpsilonBeforeCorrection, Mutant, NoUpdate, hyper_mutant, patch

_logits, _differentiate = pair.logits, base.BasePair.differentiate_and_exchange


def weight_mutant(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Mutant:
    """The model computed with changed weights."""

    def mutated(weight: dict[str, Any], *rest: Any) -> Any:
        return _logits({**weight, **change(weight)}, *rest)

    return patch(pair, "logits", mutated)


def gradient_mutant(change: Callable[[list[str], list[Any]], list[Any]]) -> Mutant:
    """Gradients changed after they were computed."""

    def mutated(self: Any, loss: Any) -> Any:
        return change(list(self.masters), _differentiate(self, loss))

    return patch(base.BasePair, "differentiate_and_exchange", mutated)


def without(name: str, columns: slice = slice(None)) -> Mutant:
    """The model with one tensor (or columns of it) set to zero."""

    def change(weight: dict[str, Any]) -> dict[str, Any]:
        mask = torch.ones_like(weight[name])
        mask[..., columns] = 0
        return {name: weight[name] * mask}

    return weight_mutant(change)


class Lazy(optimisers.Adam):
    """Adam that does not update rows of the tables without a gradient."""

    def update(self, gradients: Any) -> None:
        """Apply one update."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        super().update(gradients)
        with torch.no_grad():
            for parameter, old, gradient in zip(self.parameters, before, gradients, strict=True):
                if parameter.ndim == 2:
                    rest = (gradient == 0).all(dim=1)
                    parameter[rest] = old[rest]


_cat, _cross_entropy = torch.cat, F.binary_cross_entropy_with_logits


def _summed(logits: Any, labels: Any) -> Any:
    return _cross_entropy(logits, labels, reduction="sum")


def _swapped(parts: Any, dim: int) -> Any:
    return _cat(tuple(parts)[::-1], dim=dim)


def _single(weight: dict[str, Any]) -> dict[str, Any]:
    return {name: value.float().double() * (1 + 1e-7) for name, value in weight.items()}


def _clipped(names: list[str], gradients: list[Any]) -> list[Any]:
    del names
    return optimisers.clip_by_global_norm(gradients, 1e-3)[0]


def _one_zero(names: list[str], gradients: list[Any]) -> list[Any]:
    pairs = zip(names, gradients, strict=True)
    return [gradient * 0 if name == "mlp.2.weight" else gradient for name, gradient in pairs]


_FACTORS = spec.dimensions("mini", "f8").factors

MUTANTS: dict[str, Mutant] = {
    "no-optimiser": patch(base, "Adam", NoUpdate),
    "epsilon-times-10": hyper_mutant(epsilon="1e-7"),
    "epsilon-before-correction": patch(base, "Adam", EpsilonBeforeCorrection),
    "lazy-tables": patch(base, "Adam", Lazy),
    "beta2-0.99": hyper_mutant(beta2="0.99"),
    "rate-not-dropped": hyper_mutant(rate_drops=""),
    "clipping-added": gradient_mutant(_clipped),
    "one-gradient-zero": gradient_mutant(_one_zero),
    "sum-for-mean": patch(F, "binary_cross_entropy_with_logits", _summed),
    "no-product-branch": without("output.weight", slice(0, _FACTORS)),
    "no-mlp-branch": without("output.weight", slice(_FACTORS, None)),
    "hidden-bias-dropped": without("mlp.2.bias"),
    "output-bias-dropped": without("output.bias"),
    "relu-removed": patch(F, "relu", lambda tensor: tensor),
    "halves-swapped": patch(torch, "cat", _swapped),
    "weights-off-by-1e-7": weight_mutant(_single),
}
