"""Copies that were changed a little: noise and counters that two repeats cannot share by chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from suite.checker.context import Context, Fault, rule
from suite.record import statistics
from suite.record.model import Repeat


@rule("COPY-002", mode="throughput")
def no_disguised_copies(c: Context) -> Iterator[Fault]:
    """The noise of two repeats is not in the same order (unless the timer is too coarse to tell).

    Noise is what a step took beyond the median of its place over the repeats: batches of unequal cost make
    raw durations alike. Ranks, so that one disturbance common to both does not decide; and of its changes
    from step to step too: two repeats in which a GPU grows warm have slow noise alike (0.85 on an H200).
    """
    if c.record.mark_kind == "host_dispatch" or c.converts or len(c.repeats) < 3:
        return
    limit = c.rules.limit("copy_correlation")
    for worker in c.repeats[0].workers:
        curves = [repeat.durations_ns(worker) for repeat in c.repeats]
        if min(len(set(curve)) for curve in curves) < c.rules.limit("copy_distinct"):
            continue
        noise = statistics.noise(curves)
        ranked = [statistics.centred_ranks(values) for values in noise]
        for first, second, found in statistics.correlations(ranked):
            if found > limit and statistics.correlation_of_changes(noise[first], noise[second]) > limit:
                place = f"repeat {c.repeats[second].index}, worker {worker}, mark_ns"
                wanted = f"noise of its own: correlation with repeat {c.repeats[first].index} at most {limit}"
                yield Fault(place, wanted, f"{found:.3f}")


@rule("COPY-003", mode="throughput")
def no_copied_counters(c: Context) -> Iterator[Fault]:
    """No two repeats took the same processor time, or, in a window long enough to tell, the same energy."""
    for name in ("cpu_time_ns", "energy_mj"):
        changes = [(repeat, _change(c, repeat, name)) for repeat in c.repeats]
        for (first, ours), (second, theirs) in combinations(changes, 2):
            if ours is not None and ours == theirs:
                place = f"repeat {second.index}, change of {name} over the window"
                yield Fault(place, f"its own, not that of repeat {first.index}", ", ".join(map(str, ours)))


def _change(c: Context, repeat: Repeat, name: str) -> Sequence[int] | None:
    """What a counter of the worker or of each device grew by; None where that says nothing."""
    opened, closed = repeat.counters("window_open"), repeat.counters("window_close")
    if opened is None or closed is None:
        return None
    if name == "energy_mj":
        if closed["offset_ns"] - opened["offset_ns"] < c.rules.limit("power_span_ns"):
            return None  # the counter steps too coarsely for that
        pairs = list(zip(opened["devices"] or (), closed["devices"] or (), strict=False))
    else:
        pairs = [(opened["worker"], closed["worker"])]
    changes = [_grown(before, after, name) for before, after in pairs]
    found = [change for change in changes if change]
    return found if found and len(found) == len(changes) else None


def _grown(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, name: str) -> int | None:
    if before is None or after is None or before[name] is None or after[name] is None:
        return None
    return int(after[name] - before[name])
