"""Distributions: the histogram of one set of values, and the cumulative distributions of several."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from suite.figures import frame
from suite.figures.axis import Axis, scale
from suite.figures.frame import STYLES, Entry, Style
from suite.figures.svg import (
    SMALL,
    WIDTH,
    Figure,
    Table,
    element,
    label,
    line,
    number,
    sentences,
    width_of,
)
from suite.log.statistics import percentile

_TALL = 220.0
_PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
_FEWEST_BINS, _MOST_BINS = 10, 60
_LOG_FROM = 30.0  # largest over smallest value from which the axis of several samples is logarithmic
_FAR = 3.0  # the axis ends at this multiple of the 99th percentile if values lie beyond


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one name, such as the times of all measured steps of a run."""

    name: str
    values: tuple[float, ...]
    style: Style = STYLES[0]


def histogram(
    title: str,
    axis: Axis,
    sample: Sample,
    *,
    subtitle: str = "",
    notes: Sequence[str] = (),
    width: float = WIDTH,
) -> Figure:
    """How many steps fall into each bin of equal width, with median, 90th and 99th percentile."""
    ordered = sorted(sample.values)
    end = _end([sample])
    inside = [value for value in ordered if value <= end]
    edges = _edges(inside)
    counts = _counts(inside, edges)
    shown, bottom = frame.heading(title, subtitle, [], width)
    bottom += 46
    vertical = scale(Axis("steps", zero=True), counts, bottom + _TALL, bottom)
    left = frame.left_margin(vertical)
    horizontal = frame.horizontal(axis, edges, left, width)
    parts = [shown, frame.vertical_axis(vertical, left, width)]
    bins = [(low, high, count) for (low, high), count in zip(pairwise(edges), counts, strict=True)]
    if bins:
        path = "".join(
            f"M{number(horizontal.at(low))} {number(vertical.start)}V{number(vertical.at(count))}"
            f"H{number(horizontal.at(high))}V{number(vertical.start)}"
            for low, high, count in bins
            if count
        )
        how: dict[str, str] = {"fill": sample.style.colour, "fill_opacity": "0.55", "stroke": "currentColor"}
        parts.append(element("path", d=path, stroke_width="0.6", **how))
        parts += _percentile_lines(ordered, horizontal.at, (vertical.start, vertical.end), end, width)
    else:
        parts.append(label(left + 12, vertical.start - 12, "no values"))
    drawn, bottom = frame.horizontal_axis(horizontal, vertical.start, width)
    notes = [*notes, *_beyond([sample], end, axis)]
    below, bottom = frame.footnotes(notes, bottom, width)
    rows = [(axis.cell(low), axis.cell(high), str(count)) for low, high, count in bins]
    if len(inside) < len(ordered):
        rows.append(("above", axis.cell(ordered[-1]), str(len(ordered) - len(inside))))
    table = Table((f"from: {axis.heading}", "to", "steps"), tuple(rows))
    described = sentences(title, subtitle, f"Histogram of {len(ordered)} values: {axis.heading}", *notes)
    return Figure(title, described, width, bottom, "".join([*parts, drawn, below]), table)


def cumulative(
    title: str,
    axis: Axis,
    samples: Sequence[Sample],
    *,
    subtitle: str = "",
    notes: Sequence[str] = (),
    width: float = WIDTH,
) -> Figure:
    """The share of steps at or below each value, one stepped line per sample (ECDF)."""
    samples = [Sample(one.name, tuple(sorted(one.values)), one.style) for one in samples if one.values]
    end = _end(samples)
    values = [value for one in samples for value in one.values if value <= end]
    if values and min(values) > 0 and max(values) / min(values) >= _LOG_FROM:
        axis = replace(axis, log=True)
    legend = [Entry(one.name, "line", one.style) for one in samples if one.name]
    shown, bottom = frame.heading(title, subtitle, legend, width)
    percents = tuple(float(percent) for percent in range(0, 101, 25))
    share = Axis("steps at or below the value", "%", ticks=percents)
    vertical = scale(share, percents, bottom + 24 + _TALL, bottom + 24)
    left = frame.left_margin(vertical)
    horizontal = frame.horizontal(axis, values, left, width)
    parts = [shown, frame.vertical_axis(vertical, left, width)]
    parts += [_steps(one, end, horizontal.at, vertical.at) for one in samples]
    if not values:
        parts.append(label(left + 12, vertical.start - 12, "no values"))
    drawn, bottom = frame.horizontal_axis(horizontal, vertical.start, width)
    notes = [*notes, "markers: medians", *_beyond(samples, end, axis)] if values else list(notes)
    below, bottom = frame.footnotes(notes, bottom, width)
    names = [f"{one.name}: {axis.heading}" if one.name else axis.heading for one in samples]
    rows = [
        (f"{percent} %", *(axis.cell(percentile(one.values, percent)) for one in samples))
        for percent in (_PERCENTS if samples else ())
    ]
    described = sentences(title, subtitle, f"Cumulative distribution of {axis.heading}", *notes)
    table = Table(("percentile", *names), tuple(rows))
    return Figure(title, described, width, bottom, "".join([*parts, drawn, below]), table)


def _steps(one: Sample, end: float, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """The stepped line of a sorted sample up to ``end``, with a marker at its median."""
    known = [value for value in one.values if value <= end]
    if not known:
        return ""
    d = f"M{number(x(known[0]))} {number(y(0))}"
    for index, value in enumerate(known):
        if index + 1 == len(known) or known[index + 1] != value:
            d += f"H{number(x(value))}V{number(y(100 * (index + 1) / len(one.values)))}"
    how: dict[str, str | None] = {"stroke": one.style.colour, "stroke_dasharray": one.style.dash}
    drawn = element("path", d=d, fill="none", stroke_width="1.8", **how)
    middle = percentile(one.values, 50)
    return drawn + (frame.marker(one.style, x(middle), y(50)) if middle <= end else "")


def _end(samples: Sequence[Sample]) -> float:
    """The largest value within the axis: few values far beyond would flatten the rest."""
    usual = [percentile(one.values, 99) for one in samples if one.values]
    largest = max((value for one in samples for value in one.values), default=0.0)
    return _FAR * max(usual) if usual and 0 < _FAR * max(usual) < largest else math.inf


def _beyond(samples: Sequence[Sample], end: float, axis: Axis) -> list[str]:
    values = [value for one in samples for value in one.values]
    beyond = [value for value in values if value > end]
    if not beyond:
        return []
    largest = axis.with_unit(max(beyond))
    return [f"{len(beyond)} of {len(values)} values lie beyond the axis; the largest is {largest}"]


def _edges(ordered: Sequence[float]) -> list[float]:
    """Edges of bins of a round width by the rule of Freedman and Diaconis, 10 to about 100 bins."""
    if not ordered:
        return []
    low, high = ordered[0], ordered[-1]
    if low == high:
        pad = abs(low) / 20 or 0.5
        return [low - pad, high + pad]
    quarters = percentile(ordered, 75) - percentile(ordered, 25)
    width = 2 * quarters / len(ordered) ** (1 / 3)
    width = min(max(width, (high - low) / _MOST_BINS), (high - low) / _FEWEST_BINS)
    power = 10.0 ** math.floor(math.log10(width))
    width = max(factor * power for factor in (1, 2, 2.5, 5) if factor * power <= width * 1.001)
    first, last = math.floor(low / width), math.ceil(high / width)
    return [index * width for index in range(first, last + 1)]


def _counts(ordered: Sequence[float], edges: Sequence[float]) -> list[int]:
    """How many values are in [edge, next edge); the last bin includes its end."""
    ranks = [bisect_left(ordered, edge) for edge in edges]
    if ranks:
        ranks[-1] = len(ordered)
    return [after - before for before, after in pairwise(ranks)]


def _percentile_lines(
    ordered: Sequence[float],
    x: Callable[[float], float],
    ends: tuple[float, float],
    end: float,
    width: float,
) -> list[str]:
    """Dashed lines at median, 90th and 99th percentile; their names have two rows and do not overlap."""
    bottom, top = ends
    parts, last = [], [0.0, 0.0]
    for percent in (50, 90, 99):
        value, name = percentile(ordered, percent), f"p{percent}"
        if value > end:
            continue
        at, half = x(value), width_of(name, SMALL) / 2
        parts.append(line(at, bottom, at, top, stroke_dasharray="4 3", stroke_width="1"))
        row = next((row for row in (0, 1) if at - half > last[row]), None)
        if row is not None:
            last[row] = at + half + 4
            y = top - 4 - 12 * row
            parts.append(label(min(at, width - half), y, name, size=SMALL, anchor="middle"))
    return parts
