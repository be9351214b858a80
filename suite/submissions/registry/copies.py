"""The rules that find the measurements of one submission in another.

Each submission is compared with those before it in the list; the caller decides the order. The findings of a
rule about one submission name at most :data:`MOST` others, or many copies of one run would have millions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from suite.log import statistics
from suite.rules import load
from suite.rules.root import LATEST
from suite.submissions.registry.model import Breach
from suite.submissions.registry.traces import MIN_REPEATS, Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRAM = 16  # consecutive equal durations that prove a copy, as within a run (rule COPY-001)
CHANCE = 0.2  # collision probability above which sixteen consecutive equal durations may be chance
MOST = 20  # other submissions that the findings of one rule about one submission name
_OWNERS = (
    32  # submissions kept for one sequence of durations: more share it only on a coarse timer, or as copies
)
_FACTOR = 0x9E3779B97F4A7C15  # of the hash of a sequence; odd, so that no bits are lost
_TABLES, _SEED = 100, 20  # tables of similar curves, and the seed of their planes
_PAIRS = 50_000  # pairs of curves that are compared at once
_FEW = 64  # curves
_ROUNDING = 1e-4  # far above the error of a correlation in float32

Curve = tuple[int, ...]


def copied_durations(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Sixteen consecutive durations that occur in two submissions, unless the timer is too coarse."""
    known = list(traces)
    owners: dict[Curve, list[tuple[Trace, Curve]]] = {}
    for trace, sequences in zip(known, _repeated_sequences(known), strict=True):
        reported: set[str] = set()
        by_chance: dict[int, set[int]] = {}  # the curves with which a curve shares a sequence by chance
        for curve, at in sequences:
            chance = by_chance.setdefault(id(curve), set())
            if len(chance) >= _OWNERS:
                continue  # a coarse timer
            shared = owners.setdefault(curve[at : at + GRAM], [])
            for other, theirs in shared:
                known_other = other is trace or other.location in reported or id(theirs) in chance
                if known_other or len(reported) == MOST:
                    continue
                if statistics.collision(curve + theirs) > CHANCE:
                    chance.add(id(theirs))
                    continue
                reported.add(other.location)
                yield Breach(
                    "REG-007",
                    f"{trace.location}, step_end_ns",
                    f"durations that differ from those of {other.location}",
                    f"{GRAM} consecutive equal durations",
                    between=(other.location, trace.location),
                )
            if len(shared) < _OWNERS and not (shared and shared[-1][0] is trace):
                shared.append((trace, curve))


def _repeated_sequences(traces: Sequence[Trace]) -> list[list[tuple[Curve, int]]]:
    """For each trace (curve, index) of the sequences of durations whose hash occurs twice in all traces.

    A hash of 64 bits may be equal by chance: the caller compares the durations themselves.
    """
    import numpy as np

    curves = [
        (number, curve)
        for number, trace in enumerate(traces)
        for repeats in trace.curves
        for curve in repeats
    ]
    hashes = [_hashes(curve) for _, curve in curves]
    starts = np.cumsum([0, *map(len, hashes)])
    every = np.concatenate([np.empty(0, np.uint64), *hashes])
    ordered = np.sort(every)
    positions = np.flatnonzero(np.isin(every, ordered[1:][ordered[1:] == ordered[:-1]]))
    indices = np.searchsorted(starts, positions, "right") - 1
    found: list[list[tuple[Curve, int]]] = [[] for _ in traces]
    for index, at in zip(indices.tolist(), (positions - starts[indices]).tolist(), strict=True):
        number, curve = curves[index]
        found[number].append((curve, at))
    return found


def _hashes(curve: Curve) -> NDArray[np.uint64]:
    """The hash of each sequence of :data:`GRAM` durations: a polynomial modulo 2**64."""
    import numpy as np

    values = np.array(curve, np.int64).astype(np.uint64)
    count = max(len(curve) - GRAM + 1, 0)
    found = np.zeros(count, np.uint64)
    for at in range(GRAM if count else 0):
        found = found * np.uint64(_FACTOR) + values[at : at + count]
    return found


def similar_noise(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Timing noise correlated with that of another submission: rule COPY-002, applied to two runs.

    Shifted dates, scaling and a few nanoseconds more per step change every duration but not their order. All
    submissions of one workload and phase are compared, whatever their keys, so that relabelling is useless.
    """
    groups: dict[tuple[str | None, int], list[tuple[Trace, list[float]]]] = {}
    for trace in traces:
        for noise in _noises(trace):
            groups.setdefault((trace.work, len(noise)), []).append((trace, noise))
    limit = load(LATEST).limit("copy_correlation")
    for group in groups.values():
        for first, second, found in sorted(_similar(group, limit)):
            other, ours = group[first][0].location, group[second][0].location
            wanted = f"independent noise: correlation with {other} at most {limit}"
            yield Breach("REG-012", f"{ours}, step_end_ns", wanted, f"{found:.3f}", (other, ours))


def _noises(trace: Trace) -> Iterator[list[float]]:
    """Step times minus the median over repeats, for each repeat; none where the timer is coarse."""
    for repeats in trace.curves if trace.work is not None else ():
        whole = len(repeats) >= MIN_REPEATS and len({len(curve) for curve in repeats}) == 1
        if whole and min(len(set(curve)) for curve in repeats) >= load(LATEST).limit("copy_distinct"):
            yield from statistics.noise(repeats)


def _similar(group: Sequence[tuple[Trace, list[float]]], limit: float) -> Iterator[tuple[int, int, float]]:
    """(index, index, similarity) of the first two curves of two submissions that are above ``limit``."""
    for _, pairs in groupby(_candidates(group, limit - _ROUNDING), lambda pair: id(group[pair[1]][0])):
        reported: set[str] = set()
        for first, second in sorted(pairs):
            (before, theirs), (_, ours) = group[first], group[second]
            if before.location in reported or len(reported) == MOST:
                continue
            found = statistics.similarity(theirs, ours)  # computed again exactly
            if found > limit:
                reported.add(before.location)
                yield first, second, found


def _candidates(group: Sequence[tuple[Trace, list[float]]], limit: float) -> list[tuple[int, int]]:
    """(index, index) of curves of two submissions with a similarity above ``limit``, by the second index."""
    import numpy as np

    orders = [
        _unit_vectors(np.diff(np.array([noise for _, noise in group], np.float64), order))
        for order in range(3)
    ]
    owners = np.array([number for number, (_, some) in enumerate(groupby(group, _owner)) for _ in some])
    known = np.empty(0, np.int64)  # pairs as one number each
    # Second differences, because those of honest curves are hardly correlated.
    for first, second in _pairs_to_compare(orders[2]):
        other = owners[first] != owners[second]
        pairs = np.setdiff1d(first[other] * len(group) + second[other], known, assume_unique=True)
        known = np.concatenate([known, pairs[_above(orders, pairs, limit)]])
    return sorted(((int(pair) // len(group), int(pair) % len(group)) for pair in known), key=itemgetter(1, 0))


def _pairs_to_compare(vectors: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(first, second): indices of pairs of ``vectors`` [curves, values] of length one; pairs may come again.

    Of at most :data:`_FEW` curves these are all pairs, which take less time than tables. Of more curves they
    are pairs that share a bucket: each of :data:`_TABLES` tables has a bucket for each combination of the
    signs of products with some random vectors, about as many buckets as there are curves, so that the number
    of pairs grows with the number of curves (Charikar, "Similarity estimation techniques from rounding
    algorithms", STOC 2002). Two curves with a correlation of r have equal signs with probability
    1 - arccos(r) / pi: of 50,000 curves, a pair with 0.8 shares a bucket of some table with a probability of
    0.93, with 0.9 of 0.9998.
    """
    import numpy as np

    if len(vectors) <= _FEW:
        yield np.triu_indices(len(vectors), 1)
        return
    bits = min(max(len(vectors).bit_length(), 4), 16)
    draw, weights = np.random.default_rng(_SEED), 1 << np.arange(bits)
    for _ in range(_TABLES):
        planes = draw.standard_normal((vectors.shape[1], bits), np.float32)
        yield _sharing((vectors @ planes > 0) @ weights)


def _owner(one: tuple[Trace, list[float]]) -> int:
    return id(one[0])


def _sharing(buckets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(indices, larger indices) of the pairs in one bucket, at most with its first :data:`MOST` curves."""
    import numpy as np

    order = np.argsort(buckets, kind="stable")
    ordered = buckets[order]
    starts = np.searchsorted(ordered, ordered)  # of each curve's bucket
    behind = np.arange(len(order)) - starts  # curves before it in its bucket
    chosen = [np.flatnonzero(behind > at) for at in range(min(MOST, int(behind.max())))]
    firsts = [order[starts[some] + at] for at, some in enumerate(chosen)]
    nothing = np.empty(0, np.int64)
    return np.concatenate([nothing, *firsts]), np.concatenate([nothing, *(order[some] for some in chosen)])


def _above(
    orders: Sequence[NDArray[np.float32]], pairs: NDArray[np.int64], limit: float
) -> NDArray[np.bool_]:
    """Whether the correlations of all ``orders`` of differences of each pair are above ``limit``."""
    import numpy as np

    found = np.ones(len(pairs), np.bool_)
    for at in range(0, len(pairs), _PAIRS):
        first, second = np.divmod(pairs[at : at + _PAIRS], len(orders[0]))
        for vectors in reversed(orders):
            left = np.flatnonzero(found[at : at + _PAIRS])
            products = np.einsum("ij,ij->i", vectors[first[left]], vectors[second[left]])
            found[at + left] = products > limit
    return found


def _unit_vectors(curves: NDArray[np.float64]) -> NDArray[np.float32]:
    """The centred ranks of each curve, divided by their norm: their products are rank correlations."""
    import numpy as np

    order = np.argsort(curves, axis=1, kind="stable")
    ordered = np.take_along_axis(curves, order, axis=1)
    positions = np.broadcast_to(np.arange(curves.shape[1]), curves.shape)
    begins = np.pad(ordered[:, 1:] != ordered[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    first = np.maximum.accumulate(np.where(begins, positions, 0), axis=1)  # of equal values
    ends = np.pad(begins[:, 1:], ((0, 0), (0, 1)), constant_values=True)
    last = np.minimum.accumulate(np.where(ends, positions, curves.shape[1])[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(curves.shape, np.float32)
    np.put_along_axis(ranks, order, (first + last - curves.shape[1] + 1).astype(np.float32), axis=1)
    norms = np.sqrt(np.einsum("ij,ij->i", ranks, ranks, dtype=np.float64))[:, None]
    return (ranks / np.where(norms > 0, norms, 1)).astype(np.float32)


def shared_numbers(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Losses, outputs or weights that depend on a run's own seeds, and occur in another submission."""
    owners: dict[str, Trace] = {}
    for trace in traces:
        reported: set[str] = set()
        for name, digest in trace.numbers:
            other = owners.setdefault(digest, trace)
            if other is not trace and other.location not in reported:
                reported.add(other.location)
                yield Breach(
                    "SUBM-007",
                    f"{trace.location}, {name} of its timed steps",
                    f"numbers other than those of {other.location}, since each run has its own seeds",
                    f"equal {name}",
                    between=(other.location, trace.location),
                )
