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
    described,
    element,
    fit,
    label,
    line,
    number,
    sentences,
    width_of,
    wrapped,
)

_ROW, _LANE = 26.0, 17.0  # px of a row with one result, and of each result of a row with several
_LINE = 15.0  # px of a line of a name
_NAMES = 0.42  # of the width at most, for names beside their lanes
_BESIDE = 2  # lines of such a name at most; where one needs more, all names stand above their lanes
_LEAST_AXIS = 100.0  # px of the axis beside the names
_VALUES = 170.0  # px at most for the values beside the axis
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

    Results of one name share a row, a lane each. Those without a value come last. Long names stand above
    their lanes, with the whole width, and are never cut in favour of the axis. The axis begins at 0 unless
    values differ by a factor of 30 or more; then it is logarithmic. An interval beyond twice the largest
    value is cut, and ends in an arrow.
    """
    rows = _rows(results, lowest_first)
    ordered = [dot for row in rows for dot in row]
    values = [dot.value for dot in ordered if dot.value is not None]
    limit = 2 * max(values, default=0.0)
    ends = [min(end, limit) for dot in ordered for end in (dot.low, dot.high) if end is not None]
    ends += [one for dot in ordered for one in dot.repeats]
    log = bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_FROM
    axis = Axis(axis.label, axis.unit, log, zero=not log)
    series = {dot.series: dot.style for dot in results if dot.series}
    legend = [Entry(name, "point", one) for name, one in series.items()] if len(series) > 1 else []
    shown, top = frame.heading(title, subtitle, legend, width)
    end = width - max((width_of(_value(dot, axis), SMALL) for dot in ordered), default=0.0) - 16
    above, names = _names([row[0].name for row in rows], width, end)
    left = frame.PAD if above else max((width_of(one) for name in names for one in name), default=0.0) + 12
    horizontal = scale(axis, [*values, *ends], left, end, most=_ticks(end - left))
    parts, drawn, y, grid = [shown], [], top + 4, []
    for row, lines in zip(rows, names, strict=True):
        height = _ROW if len(row) == 1 else _LANE * len(row) + 6
        if above:
            parts += [label(0, y + _LINE * (at + 1), one) for at, one in enumerate(lines)]
            y += _LINE * len(lines) + 4
        else:
            height = max(height, _LINE * len(lines) + 11)
            first = y + (height - _LINE * (len(lines) - 1)) / 2 + 4
            parts += [label(left - 10, first + _LINE * at, one, anchor="end") for at, one in enumerate(lines)]
        grid.append((y, y + height))
        start = y + (height - _LANE * (len(row) - 1)) / 2
        drawn += [
            part for at, dot in enumerate(row) for part in _lane(dot, axis, horizontal, start + _LANE * at)
        ]
        y += height + (4 if above else 0)
    if not above:
        grid = [(top, y + 4)]  # names that stand beside the grid do not interrupt it
    shown_axis, bottom = frame.horizontal_axis(horizontal, y + 4, width, grid)
    if not rows:
        parts.append(label(left + 12, y, "no results"))
    circles = ["circles: repeats"] if any(dot.repeats for dot in ordered) else []
    notes = [*notes, *circles]
    below, bottom = frame.footnotes(notes, bottom, width)
    order = "smallest first" if lowest_first else "largest first"
    what = f"{axis.heading} of {len(ordered)} results, {order}"
    description = sentences(title, subtitle, what, *notes)
    content = "".join([*parts, shown_axis, *drawn, below])
    return Figure(title, description, width, bottom, content, _table(ordered, axis, len(series) > 1))


def _names(names: Sequence[str], width: float, end: float) -> tuple[bool, list[list[str]]]:
    """(whether they stand above their lanes, the lines of each name). ``end``: where the axis ends."""
    beside = _NAMES * width
    found = [wrapped(name, beside, SIZE, _BESIDE + 1) or ["?"] for name in names]
    broken = any(width_of(word) > beside for name in names for word in name.split())
    if not broken and all(len(lines) <= _BESIDE for lines in found) and end - beside >= _LEAST_AXIS:
        return False, found
    return True, [wrapped(name, width, SIZE, frame.MOST_LINES) or ["?"] for name in names]


def _ticks(width: float) -> int:
    """How many ticks an axis of so many px has room for."""
    return max(3, min(6, int(width / 70)))


def _rows(results: Sequence[Dot], lowest_first: bool) -> list[list[Dot]]:
    """Results of one name are one row. Rows are ordered by their best value, and so is each row."""
    sign = 1 if lowest_first else -1

    def order(dot: Dot) -> tuple[bool, float, str, str]:
        return (dot.value is None, sign * (dot.value or 0.0), dot.name, dot.series)

    rows: dict[str, list[Dot]] = {}
    for dot in sorted(results, key=order):
        rows.setdefault(dot.name, []).append(dot)
    return list(rows.values())


def _value(dot: Dot, axis: Axis) -> str:
    if dot.value is None:
        return ""
    return fit(axis.cell(dot.value) + (f" {dot.note}" if dot.note else ""), _VALUES, SMALL)


def _lane(dot: Dot, axis: Axis, at: Scale, y: float) -> list[str]:
    """Line from the axis, repeats, interval, marker and value of one result."""
    if dot.value is None:
        marker = [frame.marker(dot.style, at.start + 8, y, 3.5, hollow=True)] if dot.series else []
        note = fit(dot.note or "null", at.end - at.start - 30, SMALL)
        return [*marker, label(at.start + 18, y + 4, note, size=SMALL, weight="bold", opacity=MUTED)]
    x = at.at(dot.value)
    parts = [line(at.start, y, x, y, stroke=dot.style.colour, stroke_width="1.5", stroke_opacity="0.5")]
    parts += [
        element("circle", cx=at.at(one), cy=y + 7, r=1.6, fill="none", stroke="currentColor")
        for one in dot.repeats
    ]
    if dot.low is not None and dot.high is not None:
        low, high = number(at.at(dot.low)), number(at.at(dot.high))
        arrow = f"M{number(at.at(dot.high) - 5)} {number(y - 3)}l5 3l-5 3"
        end = arrow if dot.high > at.high else f"M{high} {number(y - 4)}v8"
        d = f"M{low} {number(y)}H{high}M{low} {number(y - 4)}v8{end}"
        parts.append(element("path", d=d, fill="none", stroke="currentColor", stroke_width="1.4"))
    words = ", ".join(filter(None, (dot.name, dot.series, axis.with_unit(dot.value))))
    parts.append(described(frame.marker(dot.style, x, y, 4.5), words))
    parts.append(label(at.end + 10, y + 4, _value(dot, axis), size=SMALL))
    return parts


def _table(ordered: Sequence[Dot], axis: Axis, with_series: bool) -> Table:
    """One row per result, in the order of the figure; columns without any value are left out."""
    interval = any(dot.low is not None for dot in ordered)
    most = max((len(dot.repeats) for dot in ordered), default=0)
    headings = ["result", *(["series"] if with_series else []), axis.heading]
    headings += ["95 % low", "95 % high"] if interval else []
    headings += [f"repeat {index}" for index in range(most)]
    rows = []
    for dot in ordered:
        if dot.value is None:
            value = (dot.note or "null") + (f" ({dot.reason})" if dot.reason else "")
        else:
            value = axis.cell(dot.value) + (f" {dot.note}" if dot.note else "")
        row = [dot.name, *([dot.series] if with_series else []), value]
        if interval:
            row += ["" if end is None else axis.cell(end) for end in (dot.low, dot.high)]
        row += [axis.cell(one) for one in dot.repeats] + [""] * (most - len(dot.repeats))
        rows.append(tuple(row))
    return Table(tuple(headings), tuple(rows))
