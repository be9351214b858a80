"""Mistakes of ranks that all frameworks share; see :mod:`tests.equivalence.mutants.world_pytorch`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from suite.common.stream import Stream
from suite.contract import Job
from suite.workloads.word2vec.data import Pairs
from tests.equivalence.cases import ncf

if TYPE_CHECKING:
    from tests.equivalence.world import Change

_arrays = Pairs.arrays


def patch(target: Any, attribute: str, replacement: Any) -> Change:
    """``target.attribute`` replaced on every rank."""

    @contextlib.contextmanager
    def mutant(job: Job) -> Iterator[Job]:
        with mock.patch.object(target, attribute, replacement):
            yield job

    return mutant


@contextlib.contextmanager
def same_shard(job: Job) -> Iterator[Job]:
    """Every rank reads the rows of rank 0."""
    yield replace(job, rank=0)


@contextlib.contextmanager
def seed_by_rank(job: Job) -> Iterator[Job]:
    """Every rank draws its data from a seed of its own."""
    with mock.patch.object(ncf, "Stream", lambda *key: Stream(*key, job.rank)):
        yield job


def other_weights(pair: Any) -> Change:
    """Rank 1 begins with other weights, and nobody broadcasts those of rank 0; ``pair`` is the base class."""
    honest = pair.initial_weights

    @contextlib.contextmanager
    def mutant(job: Job) -> Iterator[Job]:
        def initial(self: Any) -> Any:
            return ((name, value * (1 + 1e-3 * job.rank)) for name, value in honest(self))

        with mock.patch.object(pair, "initial_weights", initial):
            yield job

    return mutant


def stale(pair: Any, copied: Callable[[Any], Any]) -> Change:
    """The gradient of the step before: the exchange of this step is not waited for.

    ``pair`` is the base class, ``copied`` copies a tensor.
    """
    honest = pair.differentiate_and_exchange

    @contextlib.contextmanager
    def mutant(job: Job) -> Iterator[Job]:
        kept: list[Any] = []

        def differentiate(self: Any, loss: Any) -> Any:
            kept.append([copied(gradient) for gradient in honest(self, loss)])
            return kept[-2:][0]

        with mock.patch.object(pair, "differentiate_and_exchange", differentiate):
            yield job

    return mutant


def _local_shares(self: Any, *arguments: Any) -> Any:
    """The factors of word2vec's rows, from the pairs of this rank instead of all."""
    arrays = _arrays(self, *arguments)
    return arrays | self._shares(arrays)


local_normaliser = patch(Pairs, "arrays", _local_shares)
