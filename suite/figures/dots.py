"""Categories ordered by value: a marker per result with its 95 % interval and its repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.figures import frame
from suite.figures.axis import Axis, Scale, scale
from suite.figures.frame import STYLES, Entry, Style
from suite.figures.svg import (
    MUTED,
    SIZE,
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
    wrapped,
)

_ROW, _LINE = 26.0, 15.0  # px of a row, and of each further line of its name
_NAMES = 0.42  # of the width at most, for the names
_LOG_FROM = 30.0  # largest over smallest value from which the axis is logarithmic


@dataclass(frozen=True, slots=True)
class Dot:
    """One result. ``value`` None: ``note`` is shown instead, such as OOM, and the table adds ``reason``.

    ``repeats``: the value of each repeat. With a value, ``note`` stands beside it.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    repeats: tuple[float, ...] = ()
    note: str = ""
    reason: str = ""
    series: str = ""
    style: Style = STYLES[0]


def dots(
    title: str,
    axis: Axis,
    results: Sequence[Dot],
    *,
    subtitle: str = "",
    notes: Sequence[str] = (),
    lowest_first: bool = False,
    width: float = WIDTH,
) -> Figure:
    """The figure of ``results``, the best first: the largest value, or the smallest (``lowest_first``).

    Results without a value come last. The axis begins at 0 unless values differ by a factor of 30 or more;
    then it is logarithmic. An interval beyond twice the largest value is cut, and ends in an arrow.
    """
    known = [dot for dot in results if dot.value is not None]
    known.sort(key=lambda dot: ((dot.value or 0.0) * (1 if lowest_first else -1), dot.name))
    ordered = [*known, *sorted((dot for dot in results if dot.value is None), key=lambda dot: dot.name)]
    values = [dot.value for dot in known if dot.value is not None]
    limit = 2 * max(values, default=0.0)
    ends = [end for dot in known for end in (dot.low, dot.high, *dot.repeats) if end is not None]
    log = bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_FROM
    axis = Axis(axis.label, axis.unit, log, zero=not log)
    series = {dot.series: dot.style for dot in ordered if dot.series}
    legend = [Entry(name, "point", one) for name, one in series.items()] if len(series) > 1 else []
    shown, top = frame.heading(title, subtitle, legend, width)
    names = _names(ordered, width)
    left = max((width_of(one) for lines in names for one in lines), default=0.0) + 12
    texts = [_value(dot, axis) for dot in ordered]
    right = width - max((width_of(one, SMALL) for one in texts), default=0.0) - 16
    horizontal = scale(axis, [*values, *(min(end, limit) for end in ends)], left, max(right, left + 60))
    parts, y, rows = [shown], top + 4, []
    for dot, lines, text in zip(ordered, names, texts, strict=True):
        height = _ROW + _LINE * (len(lines) - 1)
        rows += _row(dot, lines, text, horizontal, y + height / 2)
        y += height
    grid, bottom = frame.horizontal_axis(horizontal, top, y + 4, grid=True)
    if not ordered:
        parts.append(label(left + 12, y, "no results"))
    below, bottom = frame.footnotes(notes, bottom, width)
    order = "smallest first" if lowest_first else "largest first"
    what = f"{axis.heading} of {len(ordered)} results, {order}"
    described = sentences(title, subtitle, what, *notes)
    content = "".join([*parts, grid, *rows, below])
    return Figure(title, described, width, bottom, content, _table(ordered, axis))


def _names(ordered: Sequence[Dot], width: float) -> list[list[str]]:
    return [wrapped(dot.name, _NAMES * width, SIZE, 3) or ["?"] for dot in ordered]


def _value(dot: Dot, axis: Axis) -> str:
    if dot.value is None:
        return ""
    return axis.cell(dot.value) + (f" {dot.note}" if dot.note else "")


def _row(dot: Dot, lines: Sequence[str], text: str, at: Scale, y: float) -> list[str]:
    """Name, line from the axis, repeats, interval, marker and value of one result."""
    first = y - _LINE * (len(lines) - 1) / 2 + 4
    parts = [label(at.start - 10, first + _LINE * i, one, anchor="end") for i, one in enumerate(lines)]
    if dot.value is None:
        return [*parts, label(at.start + 8, y + 4, dot.note or "null", weight="bold", opacity=MUTED)]
    x = at.at(dot.value)
    parts.append(line(at.start, y, x, y, stroke=dot.style.colour, stroke_width="1.5", stroke_opacity="0.5"))
    parts += [
        element("circle", cx=at.at(one), cy=y + 8, r=1.8, fill="none", stroke="currentColor")
        for one in dot.repeats
    ]
    if dot.low is not None and dot.high is not None:
        low, high = number(at.at(dot.low)), number(at.at(dot.high))
        end = f"M{number(at.at(dot.high) - 5)} {number(y - 3)}l5 3l-5 3"
        end = end if dot.high > at.high else f"M{high} {number(y - 4)}v8"
        d = f"M{low} {number(y)}H{high}M{low} {number(y - 4)}v8{end}"
        parts.append(element("path", d=d, fill="none", stroke="currentColor", stroke_width="1.4"))
    parts.append(frame.marker(dot.style, x, y, 4.5))
    parts.append(label(at.end + 10, y + 4, text, size=SMALL))
    return parts


def _table(ordered: Sequence[Dot], axis: Axis) -> Table:
    """One row per result, in the order of the figure; columns without any value are left out."""
    interval = any(dot.low is not None for dot in ordered)
    most = max((len(dot.repeats) for dot in ordered), default=0)
    headings = ["result", axis.heading]
    headings += ["95 % low", "95 % high"] if interval else []
    headings += [f"repeat {index}" for index in range(most)]
    rows = []
    for dot in ordered:
        value = _value(dot, axis) or (dot.note or "null") + (f" ({dot.reason})" if dot.reason else "")
        row = [dot.name, value]
        if interval:
            row += ["" if end is None else axis.cell(end) for end in (dot.low, dot.high)]
        row += [axis.cell(one) for one in dot.repeats] + [""] * (most - len(dot.repeats))
        rows.append(tuple(row))
    return Table(tuple(headings), tuple(rows))
