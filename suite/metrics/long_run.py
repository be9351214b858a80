"""Drift of the step time and growth of host memory within windows: one slope per repeat, t over the repeats.

The steps of one process are not independent, and the readings of its memory even less: the interval comes
from the repeats, each of which has one slope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from suite.contract import MEASURED_STEPS
from suite.log import statistics
from suite.log.model import Record, Repeat
from suite.log.units import count, quantity, significant
from suite.metrics.machine import at
from suite.metrics.metric import Metric, missing, reason_of_reading

LEAST_STEPS = 1000  # of a window: in fewer, the noise of single steps hides a slope
LEAST_READINGS = 3  # of memory in the part of a window that a slope is fitted to
OWN_RECORDS = 2048  # bytes: at most what the suite itself keeps of a step in the memory of a rank
_BLOCKS = 50  # of a window; the median of each block leaves out single slow steps
_SETTLING = 0.25  # of a window: allocators and caches still fill
_MOST_REPEATS = max(statistics.INTERVALS)

DRIFT, ANONYMOUS, PAGE_CACHE = "drift_percent", "anonymous_growth_bytes", "page_cache_growth_bytes"
_DRIFT_UNIT, _GROWTH_UNIT = "% per 1,000 steps", "bytes/step"


def long_run_metrics(record: Record, done: Sequence[Repeat]) -> dict[str, Metric]:
    """Drift and growth with their 95 % intervals; those of windows that are too short have a reason."""
    steps = int(record.header["measured_steps"])
    memory = (
        (ANONYMOUS, "processes", "anonymous_bytes", "anonymous memory of the ranks and their descendants"),
        (PAGE_CACHE, "host", "page_cache_bytes", "page cache of the control group"),
    )
    found = _with_interval(DRIFT, _DRIFT_UNIT, _drifts(record, done, steps), "step time")
    for name, of, field, what in memory:
        found |= _with_interval(name, _GROWTH_UNIT, _growths(done, steps, of, field), what)
    return found


def _with_interval(name: str, unit: str, slopes: list[float] | str, what: str) -> dict[str, Metric]:
    """The metric ``name`` and the ends of its interval, from a slope per repeat or the reason without."""
    names = _names(name)
    if isinstance(slopes, str):
        return dict.fromkeys((names[1], names[0], names[2]), missing(slopes))
    note = f"{what}, a slope in each of {len(slopes)} repeats, Student t over them"
    low, mean, high = statistics.interval(slopes)
    interval = f"95 % interval {significant(low)} to {significant(high)}; {note}"
    ends = {names[0]: Metric(low, unit, note=note), names[2]: Metric(high, unit, note=note)}
    return {names[1]: Metric(mean, unit, note=interval), **ends}


def _names(name: str) -> tuple[str, str, str]:
    """The metrics of the low end of an interval, its middle and its high end."""
    stem, _, unit = name.rpartition("_")
    return f"{stem}_low_{unit}", name, f"{stem}_high_{unit}"


def _too_few(record_repeats: int, steps: int) -> str:
    """Why windows of so few steps or repeats show nothing; empty if they do."""
    if steps < LEAST_STEPS:
        return f"windows of {steps} steps are too short to show one: STEPS={LEAST_STEPS} or more"
    if not 2 <= record_repeats <= _MOST_REPEATS:
        return f"an interval needs 2 to {_MOST_REPEATS} repeats, found {record_repeats}: set REPEATS"
    return ""


def _drifts(record: Record, done: Sequence[Repeat], steps: int) -> list[float] | str:
    """Percent that steps of equal work get slower in 1,000 steps, for each repeat: the mean of its ranks."""
    if not record.computes:
        return "jobs without a model work in parallel: the time between two timestamps is not that of a step"
    if why := _too_few(len(done), steps):
        return why
    if record.timestamp_kind == "host_dispatch":
        return "timestamps of kind host_dispatch do not time steps"
    keys = [(repeat, rank) for repeat in done for rank in repeat.ranks]
    work = [[step.data["units"] for step in repeat.steps_of(rank, "measured")] for repeat, rank in keys]
    curves = statistics.relative([repeat.durations_ns(rank) for repeat, rank in keys], work)
    by_repeat: dict[int, list[float]] = {}
    for (repeat, _), curve in zip(keys, curves, strict=True):
        block = -(-len(curve) // _BLOCKS)
        starts = range(0, len(curve), block)
        points = [(start / 1000, statistics.median(curve[start : start + block])) for start in starts]
        by_repeat.setdefault(repeat.index, []).append(100 * statistics.slope(points))
    return [sum(slopes) / len(slopes) for slopes in by_repeat.values()]


def _growths(done: Sequence[Repeat], steps: int, of: str, field: str) -> list[float] | str:
    """Bytes that the memory ``field`` of all nodes grows by in a step, for each repeat."""
    if why := _too_few(len(done), steps):
        return why
    slopes = []
    for repeat in done:
        nodes = 1 if repeat.start is None else int(repeat.start["nodes"])
        found = [_growth_of_node(repeat, node, of, field) for node in range(nodes)]
        for one in found:
            if isinstance(one, str):
                return one
        bytes_per_ns = sum(one for one in found if not isinstance(one, str))
        slopes.append(bytes_per_ns * (repeat.window_ns or 0) / steps)
    return slopes


def _growth_of_node(repeat: Repeat, node: int, of: str, field: str) -> float | str:
    """The growth of ``field`` on ``node`` in bytes per ns of the window, or why it is unknown."""
    opened, closed = repeat.counters("window_open", node), repeat.counters("window_close", node)
    if opened is None or closed is None:
        return f"repeat {repeat.index} has no counters at window start and end"
    start, end = opened["offset_ns"], closed["offset_ns"]
    samples = [one for one in repeat.samples("window") if one["node"] == node]
    events = [one for one in samples if one["offset_ns"] < end] + [closed]
    settled = [one for one in events if one["offset_ns"] >= start + _SETTLING * (end - start)]
    first: int | None = None
    points = []
    for event in settled:
        value = at(event.data, f"{of}.{field}")
        if value is None:
            return reason_of_reading(repeat, event, f"{of}.{field}")
        first = value if first is None else first
        points.append((float(event["offset_ns"] - start), float(value - first)))
    if len({moment for moment, _ in points}) < LEAST_READINGS:
        return (
            f"the {(end - start) / 1e9:.2g} s of window {repeat.index} are too short to show one: "
            f"{count(len(points), 'reading')} of memory, one a second, where a slope needs {LEAST_READINGS}: "
            "MIN_SECONDS=10, or more STEPS"
        )
    return statistics.slope(points)


def long_run_text(record: Record, metrics: Mapping[str, Metric]) -> Iterator[tuple[str, str]]:
    """(label, sentence) of drift and growth in a run of longer windows than usual; nothing for other runs."""
    steps = int(record.header["measured_steps"])
    if steps == MEASURED_STEPS or ANONYMOUS not in metrics:
        return
    ranks = 1 if record.conversion is not None else record.key.devices
    yield "drift", _sentence(metrics, DRIFT, _drift_verdict)
    yield (
        "anonymous memory",
        _sentence(metrics, ANONYMOUS, _growth_verdict(steps, OWN_RECORDS * ranks, own=True)),
    )
    yield "page cache", _sentence(metrics, PAGE_CACHE, _growth_verdict(steps, OWN_RECORDS))


def _sentence(metrics: Mapping[str, Metric], name: str, verdict: Callable[[float, float, float], str]) -> str:
    low, mean, high = (metrics[one] for one in _names(name))
    if low.value is None or mean.value is None or high.value is None:
        return f"null ({mean.reason})"
    return verdict(low.value, mean.value, high.value)


def _drift_verdict(low: float, mean: float, high: float) -> str:
    interval = f"{mean:+.3g} % per 1,000 steps (95 % interval {low:+.3g} to {high:+.3g} %)"
    if low > 0:
        return f"steps get slower: {interval}"
    return f"steps get faster: {interval}" if high < 0 else f"none found: {interval}"


def _growth_verdict(steps: int, least: int, *, own: bool = False) -> Callable[[float, float, float], str]:
    """The sentence for a growth, which is one above ``least`` bytes a step.

    With ``own`` that is what the suite itself may keep.
    """

    def verdict(low: float, mean: float, high: float) -> str:
        low_text, mean_text, high_text = (quantity(end, "bytes") for end in (low, mean, high))
        interval = f"{mean_text} a step (95 % interval {low_text} to {high_text})"
        if low > least:
            return f"grows: {interval}, {quantity(mean * steps, 'bytes')} in {steps:,} steps"
        kept = f"; up to {quantity(least, 'bytes')} are the suite's own records" if own else ""
        if high > least:
            return f"not decided: {interval}{kept}: more STEPS or REPEATS"
        return f"no growth found: {interval}{kept}"

    return verdict
