"""The rules that find the measurements of one submission in another.

Each submission is compared with those before it in the list; the caller decides the order. The findings of a
rule about one submission name at most :data:`MOST` others, or many copies of one run would have millions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
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
_BLOCK = 256  # curves that one matrix product compares with all before them: 50 MB at 50,000 curves
_ROUNDING = 1e-4  # far above the error of a correlation in float32
_PAIRS = 200  # similar curves of others that are examined for one curve

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
        for first, second, found in sorted(_correlated(group, limit)):
            other, ours = group[first][0].location, group[second][0].location
            wanted = f"independent noise: correlation with {other} at most {limit}"
            yield Breach("REG-012", f"{ours}, step_end_ns", wanted, f"{found:.3f}", (other, ours))


def _noises(trace: Trace) -> Iterator[list[float]]:
    """Step times minus the median over repeats, for each repeat; none where the timer is coarse."""
    for repeats in trace.curves if trace.work is not None else ():
        whole = len(repeats) >= MIN_REPEATS and len({len(curve) for curve in repeats}) == 1
        if whole and min(len(set(curve)) for curve in repeats) >= load(LATEST).limit("copy_distinct"):
            yield from statistics.noise(repeats)


def _correlated(group: Sequence[tuple[Trace, list[float]]], limit: float) -> Iterator[tuple[int, int, float]]:
    """(index, index, correlation) of the first two curves of two submissions that are above ``limit``.

    Warming GPUs have similar slow noise, so the changes of the noise must be correlated as well. A matrix
    product compares every pair of curves: no index finds all pairs among vectors of 100 numbers. The
    correlations that it finds are computed again exactly.
    """
    for pairs in _similar_pairs(group, limit - _ROUNDING):
        reported: set[str] = set()
        for first, second in sorted(pairs):
            (before, theirs), (_, ours) = group[first], group[second]
            if before.location in reported:
                continue
            found = statistics.rank_correlation(theirs, ours)
            found = min(found, statistics.correlation_of_changes(theirs, ours)) if found > limit else found
            if found > limit:
                reported.add(before.location)
                yield first, second, found
            if len(reported) == MOST:
                break


def _similar_pairs(
    group: Sequence[tuple[Trace, list[float]]], limit: float
) -> Iterator[list[tuple[int, int]]]:
    """For each trace that has some: pairs (index of another's curve, index of its own) above ``limit``."""
    import numpy as np

    owners = [number for number, (_, some) in enumerate(groupby(group, lambda one: id(one[0]))) for _ in some]
    owner = np.array(owners)
    ranks = _unit_vectors([noise for _, noise in group])
    changes = _unit_vectors([np.diff(noise).tolist() for _, noise in group])
    start = 0
    while start < len(group):
        # A trace lies in one block, so that a pair of its own curves can only be in the block itself.
        stop = int(np.searchsorted(owner, owner[min(start + _BLOCK, len(group)) - 1], "right"))
        similar = ranks[start:stop] @ ranks[:stop].T > limit
        similar[:, start:] &= owner[start:stop] < owner[start:stop, None]
        if similar.any():
            similar &= changes[start:stop] @ changes[:stop].T > limit
            seconds = (np.flatnonzero(similar.any(axis=1)) + start).tolist()
            for _, some in groupby(seconds, owners.__getitem__):
                yield [
                    (first, second)
                    for second in some
                    for first in np.flatnonzero(similar[second - start])[:_PAIRS].tolist()
                ]
        start = stop


def _unit_vectors(curves: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    """The centred ranks of each curve, divided by their norm: their products are rank correlations."""
    import numpy as np

    ranks = np.array([statistics.centred_ranks(curve) for curve in curves], np.float64)
    norms = np.sqrt((ranks * ranks).sum(axis=1, keepdims=True))
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
