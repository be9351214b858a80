"""Figures of one result from the curves of its log (:mod:`suite.metrics.curves`): steps, telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.contract import MEASURED_STEPS, WARMUP_STEPS
from suite.figures.axis import Axis
from suite.figures.distribution import Sample, cumulative, histogram
from suite.figures.frame import style
from suite.figures.lines import Point, Series, Span, lines
from suite.figures.svg import WIDTH, Figure
from suite.log.statistics import median

Curves = Mapping[str, Any]
_MOST_POINTS = 500  # of a line
_STEP_TIME = Axis("step time", "ms")
_TIME = Axis("time since the start of the run", "s")


def step_histogram(curves: Curves, subtitle: str = "", width: float = WIDTH) -> Figure:
    """How many measured steps of all repeats and ranks took how long."""
    times = tuple(ms for repeat in _times(curves) for rank in repeat for ms in rank)
    title = "Step times of all repeats"
    return histogram(
        title, _STEP_TIME, Sample("", times), subtitle=subtitle, notes=_reason(curves), width=width
    )


def step_ecdf(curves: Curves, subtitle: str = "", width: float = WIDTH) -> Figure:
    """The cumulative distribution of step times, one line per repeat."""
    samples = [
        Sample(f"repeat {index}", tuple(ms for rank in repeat for ms in rank), style(index))
        for index, repeat in enumerate(_times(curves))
    ]
    title = "Distribution of step times"
    return cumulative(title, _STEP_TIME, samples, subtitle=subtitle, notes=_reason(curves), width=width)


def step_trace(curves: Curves, subtitle: str = "", width: float = WIDTH) -> Figure:
    """The time of each measured step, a band per repeat; of rank 0 where there are several ranks."""
    repeats = list(_times(curves))
    steps = max((len(ranks[0]) for ranks in repeats if ranks), default=MEASURED_STEPS)
    block = -(-steps // _MOST_POINTS)
    series = [
        Series(
            f"repeat {index}",
            tuple(
                Point(WARMUP_STEPS + at, median(ranks[0][at : at + block]))
                for at in range(0, len(ranks[0]), block)
            ),
            style(index),
        )
        for index, ranks in enumerate(repeats)
        if ranks
    ]
    notes = _reason(curves)
    if any(len(ranks) > 1 for ranks in repeats):
        notes = [*notes, "steps of rank 0"]
    if block > 1:
        notes = [*notes, f"each point: the median of {block} steps"]
    ticks = tuple(WARMUP_STEPS + steps * part / 10 for part in range(11))
    axis = Axis("step", ticks=ticks)
    return lines(
        "Step times in order",
        axis,
        _STEP_TIME,
        series,
        subtitle=subtitle,
        notes=notes,
        cut=True,
        bands=bool(series),
        width=width,
    )


def telemetry(curves: Curves, name: str, subtitle: str = "", width: float = WIDTH) -> Figure:
    """One quantity of :data:`suite.metrics.curves.TELEMETRY` over the run, one line per device or node."""
    found = curves["telemetry"][name]
    series = []
    for index, one in enumerate(found["series"]):
        points: list[Point | None] = []
        for repeat in one["repeats"]:
            points += [*(Point(x, y) for x, y in repeat), None]
        series.append(Series(one["name"], tuple(points), style(index)))
    notes = [f"no values: {found['reason']}"] if found["reason"] else []
    if curves["every"] > 1:
        notes.append(f"one of {curves['every']} samples")
    spans = [Span(start, end, True) for start, end in curves["windows"]]
    spans += [Span(start, end, False) for start, end in curves["phases"]]
    axis = Axis(found["label"], found["unit"], zero=True)
    title = f"{found['label'][0].upper()}{found['label'][1:]} over the run"
    return lines(
        title, _TIME, axis, series, subtitle=subtitle, notes=notes, spans=spans, height=150.0, width=width
    )


def _times(curves: Curves) -> Iterator[list[list[float]]]:
    """By repeat and rank, the durations in ms."""
    for repeat in curves["steps_ns"]:
        yield [[ns / 1e6 for ns in rank] for rank in repeat]


def _reason(curves: Curves) -> list[str]:
    return [f"no values: {curves['steps_reason']}"] if curves["steps_reason"] else []
