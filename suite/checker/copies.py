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
def durations_uncorrelated(c: Context) -> Iterator[Fault]:
    """The step durations of two repeats are not correlated (unless the timer is too coarse).

    Where steps have unequal work, repeats with equal batches are similar, so the median of a step over the
    repeats is subtracted first. Elsewhere it is not: repeats that are steadier than the others would share
    its noise. The correlation is of ranks, so that one common disturbance does not decide, and first and
    second differences must be correlated too: on a GPU that grows warm or changes its clock, repeats have
    similar slow curves (docs/gaming.md has the figures).
    """
    if c.record.timestamp_kind == "host_dispatch" or not c.repeats:
        return
    limit = c.rules.limit("copy_correlation")
    for rank in c.repeats[0].ranks:
        curves: Sequence[Sequence[float]] = [repeat.durations_ns(rank) for repeat in c.repeats]
        if min(len(set(curve)) for curve in curves) < c.rules.limit("copy_distinct"):
            continue
        steps = (step for repeat in c.repeats for step in repeat.steps_of(rank, "measured"))
        if len({step["units"] for step in steps}) > 1:
            curves = statistics.noise(curves)
        ranked = [statistics.centred_ranks(values) for values in curves]
        for first, second, found in statistics.correlations(ranked):
            if found > limit and (least := statistics.similarity(curves[first], curves[second])) > limit:
                location = f"repeat {c.repeats[second].index}, rank {rank}, step_end_ns"
                wanted = (
                    f"durations with a correlation of at most {limit} with repeat {c.repeats[first].index}"
                )
                yield Fault(location, wanted, f"{least:.3f}")


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
