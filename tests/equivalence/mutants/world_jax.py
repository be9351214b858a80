"""Mistakes in the exchange between JAX ranks; see :mod:`tests.equivalence.mutants.world_pytorch`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import jax

from suite.common.layers import BatchNorm
from suite.contract import Job
from suite.frameworks.jax import framework, layers
from suite.frameworks.jax.exchange import Exchange
from suite.frameworks.jax.pair import BasePair
from suite.workloads._classification import jax as classification
from tests.equivalence.mutants.world_common import (
    local_normaliser,
    other_weights,
    patch,
    same_shard,
    seed_by_rank,
)

if TYPE_CHECKING:
    from tests.equivalence.world import Change

_exchange, _apply, _loss = BasePair.exchange, BasePair.apply, classification.Pair.loss
_norm = layers._LAYERS[BatchNorm]


def _own(self: Any, carried: Any, gradients: Any) -> list[Any]:
    """The rank's gradients, which are not exchanged."""
    del self, carried
    return [gradient[0] for gradient in gradients]


def _first_unreduced(self: Any, carried: Any, gradients: Any) -> list[Any]:
    """The first tensor keeps the rank's gradient."""
    return [gradients[0][0], *_exchange(self, carried, gradients)[1:]]


def _clipped_before(self: Any, carried: Any, gradients: Any) -> list[Any]:
    """Every rank clips its gradients, and the ranks average what is left."""
    clipped, _ = framework.clip_by_global_norm([gradient[0] for gradient in gradients], self._clip)
    return _exchange(self, carried, [gradient[None] for gradient in clipped])


def _statistics_of_rank_0(self: Any, inputs: Any) -> tuple[Any, Any]:
    """Running statistics of rank 0 on all ranks, as a broadcast makes them."""
    loss, (mine,) = _loss(self, inputs)
    return loss, self.framework.exchange.total([mine if self.job.rank == 0 else 0 * mine])


def _joint_norm(layer: Any, x: Any, run: Any) -> Any:
    """Normalisation by the statistics of the global batch, as a ``jit`` over it computes without shards."""
    output = _norm(layer, jax.lax.all_gather(x, "ranks", tiled=True), run)
    return jax.lax.dynamic_slice_in_dim(output, jax.lax.axis_index("ranks") * len(x), len(x))


@contextlib.contextmanager
def joint_statistics(job: Job) -> Iterator[Job]:
    """All ranks normalise by the statistics of the global batch."""
    with mock.patch.dict(layers._LAYERS, {BatchNorm: _joint_norm}):
        yield job


def _averaged_after(self: Any, *arguments: Any) -> Any:
    """The ranks average their updated weights."""
    carried, moved, result = _apply(self, *arguments)
    return carried, self.framework.exchange.averaged(moved), result


@contextlib.contextmanager
def updated_before(job: Job) -> Iterator[Job]:
    """Every rank updates its weights by its gradients, and the ranks average the weights."""
    with mock.patch.object(BasePair, "exchange", _own), mock.patch.object(BasePair, "apply", _averaged_after):
        yield job


@contextlib.contextmanager
def stale(job: Job) -> Iterator[Job]:
    """The gradients of the step before, 0 in the first: the exchange of this step is not waited for."""
    honest, kept = BasePair.run, list[Any]()

    def run(self: Any, *arguments: Any) -> Any:
        differentiate = self._differentiate

        def earlier(*read: Any) -> Any:
            loss, gradients, state = differentiate(*read)
            kept.append(gradients)
            before = kept[-2] if len(kept) > 1 else jax.tree.map(lambda one: 0 * one, gradients)
            return loss, before, state

        with mock.patch.object(self, "_differentiate", earlier):
            return honest(self, *arguments)

    with mock.patch.object(BasePair, "run", run):
        yield job


MUTANTS: dict[str, Change] = {
    "sum-for-mean": patch(Exchange, "averaged", Exchange.total),
    "same-shard": same_shard,
    "tensor-not-reduced": patch(BasePair, "exchange", _first_unreduced),
    "no-exchange": patch(Exchange, "total", lambda self, tensors: list(tensors)),
    "other-initial-weights": other_weights(BasePair),
    "local-normaliser": local_normaliser,
    "local-clip": patch(BasePair, "exchange", _clipped_before),
    "statistics-of-rank-0": patch(classification.Pair, "loss", _statistics_of_rank_0),
    "joint-statistics": joint_statistics,
    "update-before-exchange": updated_before,
    "seed-by-rank": seed_by_rank,
    "stale-gradient": stale,
}
