"""Mistakes in skip-gram with negative sampling that the equivalence test must detect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from suite.workloads.word2vec import pytorch as pair
from suite.workloads.word2vec import pytorch_ops as ops
from suite.workloads.word2vec import spec
from tests.equivalence.mutants.common import Mutant, hyper_mutant, patch

_errors, _gradients, _update, _nearest = ops.errors, ops.gradients, pair.Pair.update, pair.Pair._nearest
_CENTRE = spec.dimensions("mini", "d100").window


def batch_mutant(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Mutant:
    """The update of a changed batch."""

    def mutated(self: Any, batch: dict[str, Any]) -> Any:
        return _update(self, {**batch, **change(batch)})

    return patch(pair.Pair, "update", mutated)


def gradient_mutant(change: Callable[..., tuple[Any, Any, Any]]) -> Mutant:
    """Losses and gradients changed after they were computed; ``contexts`` and ``live`` are available."""

    def mutated(tables: Any, words: Any, targets: Any, contexts: Any, live: Any, dtype: Any) -> Any:
        return change(*_gradients(tables, words, targets, contexts, live, dtype), contexts, live)

    return patch(ops, "gradients", mutated)


def error_mutant(change: Callable[[Any, Any, Any], tuple[Any, Any, Any]]) -> Mutant:
    """The loss of changed scores, contexts or masks."""
    return patch(ops, "errors", lambda *given: _errors(*change(*given)))


def _with_centre(scores: Any, contexts: Any, live: Any) -> Any:
    contexts = contexts.clone()
    contexts[:, _CENTRE] = live[:, 0]
    return scores, contexts, live


def _left_only(scores: Any, contexts: Any, live: Any) -> Any:
    contexts = contexts.clone()
    contexts[:, _CENTRE:] = 0
    return scores, contexts, live


def _no_saturation(scores: Any, contexts: Any, live: Any) -> Any:
    losses, error = _errors(scores, contexts, live)
    weight = live.unsqueeze(2) * contexts.unsqueeze(1)
    chance = torch.sigmoid(scores)
    chance[:, 0] -= 1
    return losses, torch.where(scores.abs() > spec.SATURATION, chance * weight, error)


def _last_negative_true(scores: Any, contexts: Any, live: Any) -> Any:
    losses, error = _errors(scores.flip(1), contexts, live.flip(1))
    return losses, error.flip(1)


def _mean(losses: Any, by_word: Any, by_target: Any, contexts: Any, live: Any) -> Any:
    pairs = contexts.sum()
    return losses, by_word / pairs, by_target / pairs


def _centre_gets_none(losses: Any, by_word: Any, by_target: Any, contexts: Any, live: Any) -> Any:
    by_target = by_target.clone()
    by_target[:, 0] = 0
    return losses, by_word, by_target


def _neighbouring_rows(losses: Any, by_word: Any, by_target: Any, contexts: Any, live: Any) -> Any:
    return losses, by_word.roll(1, 0), by_target


@torch.no_grad()
def _last_of_each(self: Any, batch: dict[str, Any]) -> Any:
    """Rows overwritten instead of summed."""
    losses, by_word, by_target = self._differentiate(batch)
    for name, ids, share, gradient in (
        ("input", "words", "word_share", by_word),
        ("output", "targets", "target_share", by_target),
    ):
        weight, at = self.masters[name], batch[ids].long()
        weight[at] = weight[at] - self.optimiser.rate * batch[share].unsqueeze(-1) * gradient
    return losses.sum() / batch["contexts"].sum()


def _single(self: Any, batch: dict[str, Any]) -> Any:
    found = _update(self, batch)
    with torch.no_grad():
        self.masters["output"] *= 1 + 1e-7
    return found


def _larger_cosines(self: Any, unit: Any, queries: Any) -> Any:
    return _nearest(self, unit, queries) * torch.tensor([1, 1 + 1e-6]).to(unit.dtype)[:, None]


def _dot_product(self: Any, unit: Any, queries: Any) -> Any:
    return _nearest(self, self.masters["input"], queries)


MUTANTS: dict[str, Mutant] = {
    "no-update": hyper_mutant(rate="0"),
    "rate-not-dropped": hyper_mutant(rate_drops=""),
    "rate-not-decayed": hyper_mutant(decay_words="1e18"),
    "mean-for-sum": gradient_mutant(_mean),
    "centre-as-context": patch(ops, "errors", lambda *given: _errors(*_with_centre(*given))),
    "left-contexts-only": error_mutant(_left_only),
    "contexts-swapped": error_mutant(lambda s, c, v: (s, c.flip(1), v)),
    "target-as-negative": error_mutant(lambda s, c, v: (s, c, torch.ones_like(v))),
    "no-negatives": error_mutant(lambda s, c, v: (s, c, v * (torch.arange(v.shape[1]) == 0))),
    "wrong-target-true": patch(ops, "errors", _last_negative_true),
    "no-saturation": patch(ops, "errors", _no_saturation),
    "centre-not-trained": gradient_mutant(_centre_gets_none),
    "rows-shifted": gradient_mutant(_neighbouring_rows),
    "duplicates-overwritten": patch(pair.Pair, "update", _last_of_each),
    "frequent-words-summed": batch_mutant(lambda b: {"word_share": torch.ones_like(b["word_share"])}),
    "frequent-targets-summed": batch_mutant(lambda b: {"target_share": torch.ones_like(b["target_share"])}),
    "weights-off-by-1e-7": patch(pair.Pair, "update", _single),
    "cosines-off-by-1e-6": patch(pair.Pair, "_nearest", _larger_cosines),
    "neighbours-by-product": patch(pair.Pair, "_nearest", _dot_product),
}
