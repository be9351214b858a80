"""COPY: two repeats must not share durations, noise or counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from suite.checker.context import Context, Fault, counter_change, rule
from suite.contract import BENCHMARK
from suite.log import statistics
from suite.log.model import Repeat

_GRAM = 16  # length of an equal sequence of durations that shows a copy
_CHANCE = 0.2  # collision probability from which such a sequence can occur by chance


@rule("COPY-001", mode="throughput")
def durations_not_shared(c: Context) -> Iterator[Fault]:
    """No two repeats share sixteen neighbouring durations (unless the timer is too coarse)."""
    curves = [(location, curve, frozenset(curve)) for location, _, _, curve in c.durations]
    for (location, first, _), (other, second, values) in combinations(curves, 2):
        if not _has_long_sequence(first, values) or statistics.collision(first + second) > _CHANCE:
            continue
        shared = _grams(first) & _grams(second)
        if shared:
            yield Fault(
                other,
                f"durations that differ from those of {location}",
                f"{len(shared)} sequences of {_GRAM} shared",
            )


def _has_long_sequence(curve: tuple[int, ...], values: frozenset[int]) -> bool:
    """Whether ``_GRAM`` neighbours in ``curve`` occur in ``values``: fast, and false for most repeats."""
    if sum(map(values.__contains__, curve)) < _GRAM:
        return False
    run = 0
    for value in curve:
        run = run + 1 if value in values else 0
        if run == _GRAM:
            return True
    return False


def _grams(curve: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {curve[at : at + _GRAM] for at in range(len(curve) - _GRAM + 1)}


@rule("COPY-002", mode="throughput", kind=BENCHMARK)
def noise_uncorrelated(c: Context) -> Iterator[Fault]:
    """The noise of two repeats is not correlated (unless the timer is too coarse).

    Noise is the duration of a step less the median of this step over the repeats, because batches of unequal
    cost make raw durations similar. The correlation is of ranks, so that one common disturbance does not
    decide. The changes from step to step must be correlated too: while a GPU warms up, repeats have similar
    slow noise (0.85 on an H200).
    """
    if c.record.timestamp_kind == "host_dispatch" or len(c.repeats) < 3:
        return
    limit = c.rules.limit("copy_correlation")
    for rank in c.repeats[0].ranks:
        curves = [repeat.durations_ns(rank) for repeat in c.repeats]
        if min(len(set(curve)) for curve in curves) < c.rules.limit("copy_distinct"):
            continue
        noise = statistics.noise(curves)
        ranked = [statistics.centred_ranks(values) for values in noise]
        for first, second, found in statistics.correlations(ranked):
            if found > limit and statistics.correlation_of_changes(noise[first], noise[second]) > limit:
                location = f"repeat {c.repeats[second].index}, rank {rank}, step_end_ns"
                wanted = f"noise with a correlation of at most {limit} with repeat {c.repeats[first].index}"
                yield Fault(location, wanted, f"{found:.3f}")


@rule("COPY-003", mode="throughput")
def counters_differ(c: Context) -> Iterator[Fault]:
    """No two repeats used equal processor time, or, in windows of sufficient length, equal energy."""
    for name in ("cpu_time_ns", "energy_mj"):
        changes = [(repeat, _change(c, repeat, name)) for repeat in c.repeats]
        for (first, ours), (second, theirs) in combinations(changes, 2):
            if ours is not None and ours == theirs:
                location = f"repeat {second.index}, change of {name} over the window"
                yield Fault(
                    location, f"a change other than that of repeat {first.index}", ", ".join(map(str, ours))
                )


def _change(c: Context, repeat: Repeat, name: str) -> Sequence[int] | None:
    """The increase of a counter of the ranks, or of each device; None if it is not conclusive."""
    opened, closed = repeat.counters("window_open"), repeat.counters("window_close")
    if opened is None or closed is None:
        return None
    if name == "energy_mj":
        if closed["offset_ns"] - opened["offset_ns"] < c.rules.limit("power_span_ns"):
            return None  # the energy counter is too coarse for this window
        pairs = list(zip(opened["devices"] or (), closed["devices"] or (), strict=False))
    else:
        pairs = [(opened["processes"], closed["processes"])]
    changes = [counter_change(before, after, name) for before, after in pairs]
    increases = [change for change in changes if change]
    return increases if increases and len(increases) == len(changes) else None
