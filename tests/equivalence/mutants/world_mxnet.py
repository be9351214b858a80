"""Mistakes in the exchange between MXNet ranks; see :mod:`tests.equivalence.mutants.world_pytorch`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from suite.contract import Job
from suite.frameworks.mxnet.exchange import Exchange
from suite.frameworks.mxnet.framework import clip_by_global_norm
from suite.frameworks.mxnet.pair import BasePair
from tests.equivalence.mutants.world_common import (
    local_normaliser,
    other_weights,
    patch,
    same_shard,
    seed_by_rank,
    stale,
)

if TYPE_CHECKING:
    from tests.equivalence.world import Change

_average, _update = Exchange.average, BasePair.update
_differentiate = BasePair.differentiate_and_exchange


def _sum(self: Any, tensors: Any) -> None:
    _average(self, tensors)
    for tensor in tensors:
        tensor *= self._size


def _clipped_before(self: Any, loss: Any) -> Any:
    """Every rank clips its gradients, and the ranks average what is left."""
    exchange = self.framework.exchange
    with mock.patch.object(exchange, "average"):
        gradients = clip_by_global_norm(_differentiate(self, loss), self._clip)[0]
    exchange.average(gradients)
    return gradients


@contextlib.contextmanager
def updated_before(job: Job) -> Iterator[Job]:
    """Every rank updates its weights by its gradients, and the ranks average the weights."""

    def update(self: Any, batch: Any) -> Any:
        loss = _update(self, batch)
        _average(self.framework.exchange, list(self.trained.values()))
        return loss

    with (
        mock.patch.object(Exchange, "average", return_value=None),
        mock.patch.object(BasePair, "update", update),
    ):
        yield job


def _statistics_of_rank_0(self: Any, batch: Any) -> Any:
    """Running statistics of rank 0 on all ranks, as a broadcast makes them."""
    loss = _update(self, batch)
    for at, tensor in enumerate(self.state):
        mine = tensor.copy() if self.job.rank == 0 else 0 * tensor
        tensor[:] = self.framework.exchange.total(f"state-{at}", mine)
    return loss


MUTANTS: dict[str, Change] = {
    "sum-for-mean": patch(Exchange, "average", _sum),
    "same-shard": same_shard,
    "no-exchange": patch(Exchange, "average", lambda self, tensors: None),
    "tensor-not-reduced": patch(Exchange, "average", lambda self, tensors: _average(self, tensors[1:])),
    "other-initial-weights": other_weights(BasePair),
    "local-normaliser": local_normaliser,
    "local-clip": patch(BasePair, "differentiate_and_exchange", _clipped_before),
    "statistics-of-rank-0": patch(BasePair, "update", _statistics_of_rank_0),
    "update-before-exchange": updated_before,
    "seed-by-rank": seed_by_rank,
    "stale-gradient": stale(BasePair, lambda gradient: gradient.copy()),
}
