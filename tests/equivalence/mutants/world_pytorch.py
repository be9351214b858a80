"""Mistakes in the exchange between ranks that the comparison of world sizes must notice.

Each is a function of a rank's job giving a context manager, inside which the rank is built and run; it yields
the job whose data the rank reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.distributed as dist

from suite.contract import Job
from suite.frameworks.pytorch import copy_engines, exchange, layers, optimisers
from suite.frameworks.pytorch.pair import BasePair
from tests.equivalence.mutants.world_common import (
    local_normaliser,
    other_weights,
    patch,
    same_shard,
    seed_by_rank,
    stale,
)
from tests.equivalence.worlds.shared_memory import copy_engine

if TYPE_CHECKING:
    from tests.equivalence.world import Change

_averaged, _differentiate = exchange.Exchange.averaged, BasePair.differentiate_and_exchange
_step, _update, _update_of = BasePair.step, BasePair.update, copy_engines.CopyEngines._update_of


def averaged(tensors: list[Any]) -> list[Any]:
    """``tensors`` averaged over the ranks, in place."""
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= dist.get_world_size()
    return tensors


def _sum(self: Any, loss: Any) -> Any:
    return [gradient * dist.get_world_size() for gradient in _differentiate(self, loss)]


@contextlib.contextmanager
def unreduced_bucket(job: Job) -> Iterator[Job]:
    """The first of several buckets keeps the rank's gradients."""

    def reduced(bucket: Any) -> Any:
        found, done = bucket.buffer(), torch.futures.Future()
        done.set_result(found if bucket.index() == 0 else averaged([found])[0])
        return done

    def hooked(self: Any, module: Any, stream: Any) -> Any:
        wrapped: Any = _averaged(self, module, stream)
        wrapped.register_comm_hook(None, lambda _, bucket: reduced(bucket))
        return wrapped

    small = mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1024)
    with small, mock.patch.object(exchange.Exchange, "averaged", hooked):
        yield job


@contextlib.contextmanager
def clipped_before(job: Job) -> Iterator[Job]:
    """Every rank clips its gradients, and the ranks average what is left."""

    def differentiate(self: Any, loss: Any) -> Any:
        return averaged(optimisers.clip_by_global_norm(_differentiate(self, loss), self._clip)[0])

    with _no_exchange(), mock.patch.object(BasePair, "differentiate_and_exchange", differentiate):
        yield job


@contextlib.contextmanager
def updated_before(job: Job) -> Iterator[Job]:
    """Every rank updates its weights by its gradients, and the ranks average the weights."""

    def update(self: Any, batch: Any) -> Any:
        loss = _update(self, batch)
        with torch.no_grad():
            averaged(list(self.trained.values()))
        return loss

    with _no_exchange(), mock.patch.object(BasePair, "update", update):
        yield job


@contextlib.contextmanager
def gradients_before_steps(job: Job) -> Iterator[Job]:
    """No mistake: all ranks also ask for the gradients of each step, which must change no weight."""

    def step(self: Any, index: int) -> None:
        self.gradients(index)
        _step(self, index)

    with copy_engine(job) as changed, mock.patch.object(BasePair, "step", step):
        yield changed


@contextlib.contextmanager
def part_updated_twice(job: Job) -> Iterator[Job]:
    """A rank updates its part of the weights twice by the same sum."""

    def update_of(self: Any, *arguments: Any) -> Any:
        update = _update_of(self, *arguments)
        return lambda *piece: (update(*piece), update(*piece))

    with copy_engine(job) as changed, mock.patch.object(copy_engines.CopyEngines, "_update_of", update_of):
        yield changed


@contextlib.contextmanager
def part_not_sent(job: Job) -> Iterator[Job]:
    """A rank keeps its part of the updated weights for itself."""
    with copy_engine(job) as changed, mock.patch.object(copy_engines.Vector, "give"):
        yield changed


def _no_exchange() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(exchange.Exchange, "averaged", lambda self, module, stream: module)


class OneStatistics(layers.Statistics):
    """Running statistics of rank 0 on all ranks, as a broadcast of a module's buffers makes them."""

    def update(self, seen: Any) -> None:
        """Update, and broadcast."""
        super().update(seen)
        for tensor in self.named.values():
            dist.broadcast(tensor, 0)


MUTANTS: dict[str, Change] = {
    "sum-for-mean": patch(BasePair, "differentiate_and_exchange", _sum),
    "same-shard": same_shard,
    "bucket-not-reduced": unreduced_bucket,
    "other-initial-weights": other_weights(BasePair),
    "local-normaliser": local_normaliser,
    "local-clip": clipped_before,
    "statistics-of-rank-0": patch(layers, "Statistics", OneStatistics),
    "update-before-exchange": updated_before,
    "seed-by-rank": seed_by_rank,
    "stale-gradient": stale(BasePair, lambda gradient: gradient.clone()),
    "part-updated-twice": part_updated_twice,
    "part-not-sent": part_not_sent,
    # No mistakes, but another exchange, which must stay within the bound.
    "copy-engine": copy_engine,
    "gradients-before-steps": gradients_before_steps,
}
