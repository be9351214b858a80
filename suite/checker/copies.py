"""COPY: durations, noise and counters that two repeats cannot share by chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from suite.checker.context import Context, Fault, rule
from suite.contract import BENCHMARK
from suite.log import statistics
from suite.log.model import Repeat

_GRAM = 16  # equal neighbours that make two repeats a copy
_CHANCE = 0.2  # collision probability from which sixteen equal neighbours are no longer out of the question


@rule("COPY-001", mode="throughput")
def durations_not_shared(c: Context) -> Iterator[Fault]:
    """No two repeats share sixteen neighbouring durations (unless the timer is too coarse)."""
    curves = [(location, curve, frozenset(curve)) for location, _, _, curve in c.durations]
    for (location, first, _), (other, second, values) in combinations(curves, 2):
        if not _run_in(first, values) or statistics.collision(first + second) > _CHANCE:
            continue
        shared = _grams(first) & _grams(second)
        if shared:
            yield Fault(
                other,
                f"durations of its own, not those of {location}",
                f"{len(shared)} runs of {_GRAM} shared",
            )


def _run_in(curve: tuple[int, ...], values: frozenset[int]) -> bool:
    """Whether enough neighbours occur in ``values`` for a copy: hardly ever, and quick to find."""
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

    Noise is what a step took beyond the median of its location over the repeats: batches of unequal cost make
    raw durations alike. Ranks, so that one disturbance common to both does not decide; and of its changes
    from step to step too: two repeats in which a GPU grows warm have slow noise alike (0.85 on an H200).
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
                wanted = f"noise of its own: correlation with repeat {c.repeats[first].index} at most {limit}"
                yield Fault(location, wanted, f"{found:.3f}")


@rule("COPY-003", mode="throughput")
def counters_differ(c: Context) -> Iterator[Fault]:
    """No two repeats used the same processor time, or, in a window of sufficient length, the same energy."""
    for name in ("cpu_time_ns", "energy_mj"):
        changes = [(repeat, _change(c, repeat, name)) for repeat in c.repeats]
        for (first, ours), (second, theirs) in combinations(changes, 2):
            if ours is not None and ours == theirs:
                location = f"repeat {second.index}, change of {name} over the window"
                yield Fault(location, f"its own, not that of repeat {first.index}", ", ".join(map(str, ours)))


def _change(c: Context, repeat: Repeat, name: str) -> Sequence[int] | None:
    """What a counter of the ranks or of each device grew by; None if it is not conclusive."""
    opened, closed = repeat.counters("window_open"), repeat.counters("window_close")
    if opened is None or closed is None:
        return None
    if name == "energy_mj":
        if closed["offset_ns"] - opened["offset_ns"] < c.rules.limit("power_span_ns"):
            return None  # the counter steps too coarsely for that
        pairs = list(zip(opened["devices"] or (), closed["devices"] or (), strict=False))
    else:
        pairs = [(opened["processes"], closed["processes"])]
    changes = [_grown(before, after, name) for before, after in pairs]
    found = [change for change in changes if change]
    return found if found and len(found) == len(changes) else None


def _grown(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, name: str) -> int | None:
    if before is None or after is None or before[name] is None or after[name] is None:
        return None
    return int(after[name] - before[name])
