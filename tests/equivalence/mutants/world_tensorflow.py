"""Mistakes in the exchange between TensorFlow ranks; see :mod:`tests.equivalence.mutants.world_pytorch`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import tensorflow as tf

from suite.contract import Job
from suite.frameworks.tensorflow import framework
from suite.frameworks.tensorflow.exchange import Exchange
from suite.frameworks.tensorflow.pair import BasePair
from suite.workloads._classification import tensorflow as classification
from tests.equivalence.mutants.world_common import (
    local_normaliser,
    other_weights,
    patch,
    same_shard,
    seed_by_rank,
)

if TYPE_CHECKING:
    from tests.equivalence.world import Change

_exchange, _update, _carry = BasePair.exchange, BasePair.update, classification.Pair.carry


def _first_unreduced(self: Any, gradients: list[Any]) -> list[Any]:
    """The first tensor keeps the rank's gradient."""
    return [gradients[0], *_exchange(self, gradients)[1:]]


def _clipped_before(self: Any, gradients: list[Any]) -> list[Any]:
    """Every rank clips its gradients, and the ranks average what is left."""
    return _exchange(self, framework.clip_by_global_norm(gradients, self._clip)[0])


def _stale(self: Any, gradients: list[Any]) -> list[Any]:
    """The gradients of the step before, 0 in the first: the exchange of this step is not waited for."""
    if not hasattr(self, "kept"):
        with tf.init_scope():
            self.kept = [tf.Variable(tf.zeros_like(master)) for master in self.trained.values()]
    before = [tf.identity(variable) for variable in self.kept]
    with tf.control_dependencies(before):
        for variable, gradient in zip(self.kept, _exchange(self, gradients), strict=True):
            variable.assign(gradient)
    return before


def _statistics_of_rank_0(self: Any, carried: Any) -> None:
    """Running statistics of rank 0 on all ranks, as a broadcast makes them."""
    _carry(self, carried)
    statistics = self._running.variable
    mine = tf.convert_to_tensor(statistics)
    statistics.assign(self.framework.exchange.total([mine if self.job.rank == 0 else 0 * mine])[0])


@contextlib.contextmanager
def updated_before(job: Job) -> Iterator[Job]:
    """Every rank updates its weights by its gradients, and the ranks average the weights."""

    def update(self: Any, batch: Any) -> Any:
        loss = _update(self, batch)
        masters = list(self.trained.values())
        averaged = self.framework.exchange.averaged([tf.convert_to_tensor(master) for master in masters])
        for master, value in zip(masters, averaged, strict=True):
            master.assign(value)
        return loss

    with (
        mock.patch.object(BasePair, "exchange", lambda self, gradients: gradients),
        mock.patch.object(BasePair, "update", update),
    ):
        yield job


MUTANTS: dict[str, Change] = {
    "sum-for-mean": patch(Exchange, "averaged", Exchange.total),
    "same-shard": same_shard,
    "tensor-not-reduced": patch(BasePair, "exchange", _first_unreduced),
    "no-exchange": patch(Exchange, "_reduced", lambda self, operation, tensors: list(tensors)),
    "other-initial-weights": other_weights(BasePair),
    "local-normaliser": local_normaliser,
    "local-clip": patch(BasePair, "exchange", _clipped_before),
    "statistics-of-rank-0": patch(classification.Pair, "carry", _statistics_of_rank_0),
    "update-before-exchange": updated_before,
    "seed-by-rank": seed_by_rank,
    "stale-gradient": patch(BasePair, "exchange", _stale),
}
