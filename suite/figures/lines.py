"""Lines and points over a numeric axis: sweeps, latency over throughput, telemetry, traces of step times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from suite.figures import frame
from suite.figures.axis import Axis, Scale, scale
from suite.figures.frame import Entry, Style
from suite.figures.svg import (
    SMALL,
    WIDTH,
    Figure,
    Table,
    described,
    element,
    fit,
    label,
    number,
    sentences,
    width_of,
)

_MARKER = 4.0  # px from the middle of a marker to its edge
_TALL, _BAND = 250.0, 74.0  # px of the vertical axis: of one for all series, of one per series
_CUT = 4.0  # an axis ends at this multiple of the 99th percentile if values lie beyond
_BESIDE = 11.0  # px between markers that would cover each other
_MOST_MARKERS, _MANY = 40, 12  # markers of a series: longer ones are lines only, or have smaller markers


@dataclass(frozen=True, slots=True)
class Point:
    """One point with its 95 % interval. ``y`` None: not measured, for the reason in ``note``.

    ``label`` is drawn beside the point, such as the batch in a scatter or OOM.
    """

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    label: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one name, in the order of the line; None interrupts it. ``line`` False: points only.

    ``markers`` False: a line that only guides the eye, such as an ideal; it is drawn without its points.
    """

    name: str
    points: tuple[Point | None, ...]
    style: Style
    line: bool = True
    markers: bool = True

    @property
    def kind(self) -> str:
        """The kind of its entry in a legend."""
        return "point" if not self.line else "line" if self.markers else "ideal"

    @property
    def marked(self) -> bool:
        """Whether each of its points has a marker: not those of a long series."""
        return self.markers and len(self.known) <= _MOST_MARKERS

    @property
    def known(self) -> list[Point]:
        """All points, without the interruptions."""
        return [point for point in self.points if point is not None]


@dataclass(frozen=True, slots=True)
class Span:
    """A shaded part of a horizontal axis: a measurement window, or (``window`` False) another phase."""

    start: float
    end: float
    window: bool


def lines(
    title: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    subtitle: str = "",
    notes: Sequence[str] = (),
    spans: Sequence[Span] = (),
    phase: str = "soak and telemetry tail",
    ideal: str = "",
    cut: bool = False,
    bands: bool = False,
    width: float = WIDTH,
    height: float = _TALL,
) -> Figure:
    """The figure of ``series``; numbers must be finite, those that are None are shown as missing.

    ``ideal``: the name of dotted lines that are proportional to x from the first point of each series.
    ``phase``: the name of the spans that are not windows. ``cut``: the axis ends near the 99th percentile if
    few values lie far beyond; these are drawn at the edge, and a note states the largest. ``bands``: each
    series has a band of its own, below each other, all with the same vertical axis. ``height``: of the
    vertical axis in px, if there is one only.
    """
    points = [point for one in series for point in one.known]
    xs = [point.x for point in points] + [end for span in spans for end in (span.start, span.end)]
    ys = [point.y for point in points if point.y is not None]
    top = _largest(ys, cut)
    ideals = {one.name: found for one in series if ideal and (found := _proportional(one))}
    # A wide interval must not flatten the lines: beyond twice the largest value it is cut.
    limit = 2 * max(ys, default=0.0)
    ends = [min(end, limit) for point in points for end in (point.low, point.high) if end is not None]
    ends += [slope * last for _, last, slope in ideals.values()]
    shown_ys = [value for value in ys if value <= top] + ends
    extra = _extra_entries(spans, phase, ideal if ideals else "", any(point.y is None for point in points))
    named = [Entry(one.name, one.kind, one.style) for one in series if one.name]
    shown, bottom = frame.heading(title, subtitle, (extra if bands else [*named, *extra]), width)
    groups = [[one] for one in series] if bands else [list(series)]
    parts, beside = [shown], False
    for index, some in enumerate(groups):
        start = bottom + (24 if index == 0 else 16)
        vertical = scale(y, shown_ys, start + (_BAND if bands else height), start, most=3 if bands else 6)
        vertical = replace(vertical, title=vertical.title if index == 0 else "")
        left = frame.left_margin(vertical)
        right = width - (max(width_of(one.name, SMALL) for one in series) + 12 if bands else 0)
        horizontal = frame.horizontal(x, xs, left, right)
        parts += [*_spans(spans, horizontal, vertical), frame.vertical_axis(vertical, left, right)]
        if bands:
            parts.append(label(right + 8, (vertical.start + vertical.end) / 2, some[0].name, size=SMALL))
        for one in some:
            if one.name in ideals:
                parts.append(_ideal_line(*ideals[one.name], horizontal, vertical))
        moved = _beside(some, horizontal, vertical, right)
        beside = beside or bool(moved)
        for at, one in enumerate(some):
            own = {point: px for (of, point), px in moved.items() if of == at}
            parts.append(_draw(one, (x, y), (horizontal, vertical), top, own))
        parts += _labels(some, horizontal, vertical, right)
        bottom = vertical.start
    if not points:
        parts.append(label(left + 12, bottom - 12, "no values"))
    axis, bottom = frame.horizontal_axis(horizontal, bottom, width)
    notes = [*notes, *_cut_notes(points, top, y)]
    notes += ["points at one position are drawn beside each other"] if beside else []
    below, bottom = frame.footnotes(notes, bottom, width)
    names = ", ".join(one.name for one in series if one.name)
    what = f"{y.heading} over {x.heading}"
    description = sentences(title, subtitle, what, f"Series: {names}" if names else "", *notes)
    return Figure(title, description, width, bottom, "".join([*parts, axis, below]), _table(series, x, y))


def _largest(values: Sequence[float], cut: bool) -> float:
    """The largest value within the axis."""
    if not cut or len(values) < 20:
        return math.inf
    usual = sorted(values)[int(0.99 * (len(values) - 1))]
    return _CUT * usual if 0 < _CUT * usual < max(values) else math.inf


def _proportional(one: Series) -> tuple[float, float, float] | None:
    """(x of the first point, x of the last, y over x at the first); None without two points."""
    known = sorted((point.x, point.y) for point in one.known if point.y is not None and point.x > 0)
    return (known[0][0], known[-1][0], known[0][1] / known[0][0]) if len(known) > 1 else None


def _extra_entries(spans: Sequence[Span], phase: str, ideal: str, has_missing: bool) -> list[Entry]:
    entries = [Entry("measurement window", "window")] if any(span.window for span in spans) else []
    entries += [Entry(phase, "phase")] if any(not span.window for span in spans) else []
    entries += [Entry(ideal, "ideal")] if ideal else []
    return entries + ([Entry("no value", "missing")] if has_missing else [])


def _spans(spans: Sequence[Span], horizontal: Scale, vertical: Scale) -> list[str]:
    parts = []
    for span in spans:
        start, end = horizontal.at(span.start), horizontal.at(span.end)
        parts.append(
            element(
                "rect",
                x=start,
                y=vertical.end,
                width=max(end - start, 1.0),
                height=vertical.start - vertical.end,
                fill_opacity="0.16" if span.window else "0.06",
                stroke="currentColor",
                stroke_width="0.6",
                stroke_opacity="0.5",
                stroke_dasharray=None if span.window else "2 2",
            )
        )
    return parts


def _ideal_line(start: float, last: float, slope: float, horizontal: Scale, vertical: Scale) -> str:
    """Y = slope x, which is a curve on a logarithmic axis."""
    count = 40 if horizontal.log else 1
    xs = [start * (last / start) ** (index / count) for index in range(count + 1)]
    d = "M" + "L".join(f"{number(horizontal.at(x))} {number(vertical.at(slope * x))}" for x in xs)
    how: dict[str, str] = {"stroke": "currentColor", "stroke_width": "1.2", "stroke_dasharray": "1 4"}
    return element("path", d=d, fill="none", **how)


def _beside(
    series: Sequence[Series], horizontal: Scale, vertical: Scale, right: float
) -> dict[tuple[int, int], float]:
    """The x in px of points that are moved sideways, by the index of the series and of the point.

    Markers of one x that would cover each other stand beside each other, in the order of the series: around
    their position or, near an end of the axis, within the figure.
    """
    columns: dict[float, list[tuple[float, int, int]]] = {}
    for at, one in enumerate(series):
        for index, point in enumerate(one.points if one.marked else ()):
            if point is not None and point.y is not None:
                columns.setdefault(point.x, []).append((vertical.at(point.y), at, index))
    moved: dict[tuple[int, int], float] = {}
    for x, column in columns.items():
        clusters: list[list[tuple[float, int, int]]] = []
        for found in sorted(column):
            if clusters and found[0] - clusters[-1][-1][0] < _BESIDE:
                clusters[-1].append(found)
            else:
                clusters.append([found])
        for cluster in clusters:
            half = _BESIDE * (len(cluster) - 1) / 2
            first, last = horizontal.start - frame.PAD + _BESIDE / 2, right - _BESIDE / 2
            start = max(first, min(horizontal.at(x) + half, last) - 2 * half)
            for nth, (_, at, index) in enumerate(sorted(cluster, key=lambda found: found[1:])):
                if len(cluster) > 1:
                    moved[at, index] = start + _BESIDE * nth
    return moved


def _draw(
    one: Series, axes: tuple[Axis, Axis], scales: tuple[Scale, Scale], top: float, moved: Mapping[int, float]
) -> str:
    """Line, intervals and markers of a series; a point between interruptions has a marker in any case.

    ``moved``: the x in px of points, by their index, that stand beside their position.
    """
    horizontal, vertical = scales
    marked, size = one.marked, _MARKER if len(one.known) <= _MANY else 3.0
    pieces: list[list[tuple[float, float]]] = [[]]
    markers, intervals = [], []
    for index, point in enumerate(one.points):
        if point is None or point.y is None:
            pieces.append([])
            if point is not None:
                markers.append(frame.missing(horizontal.at(point.x), vertical.start - 8))
            continue
        x, y = moved.get(index, horizontal.at(point.x)), vertical.at(point.y)
        pieces[-1].append((x, y))
        if marked:
            markers.append(described(frame.marker(one.style, x, y, size), _words(one, point, axes)))
        if point.low is not None and point.high is not None:
            low, high = vertical.at(point.low), vertical.at(point.high)
            intervals.append(frame.whisker(x, low, high, one.style, point.high > vertical.high))
        if point.y > top:
            markers.append(frame.marker(Style(one.style.colour, frame.TRIANGLE), x, y + 4, 3))
    for piece in pieces:
        if one.markers and not marked and (len(piece) == 1 or not one.line):
            markers += [frame.marker(one.style, x, y, 2.0) for x, y in piece]
    drawn = [piece for piece in pieces if len(piece) > 1] if one.line else []
    if not drawn:
        return "".join(intervals + markers)
    path = "".join("M" + "L".join(f"{number(x)} {number(y)}" for x, y in piece) for piece in drawn)
    how: dict[str, str | None] = {"stroke": one.style.colour, "stroke_dasharray": one.style.dash}
    stroke = element(
        "path",
        d=path,
        fill="none",
        stroke_width="1.8" if marked else "1.2",
        stroke_linejoin="round",
        **how,
    )
    return stroke + "".join(intervals + markers)


def _words(one: Series, point: Point, axes: tuple[Axis, Axis]) -> str:
    """A point as text: series, x and y with their units."""
    x, y = axes
    where = f"{x.label} {x.with_unit(point.x)}"
    return ", ".join(filter(None, (one.name, where, f"{y.label} {y.with_unit(point.y or 0.0)}")))


def _labels(series: Sequence[Series], horizontal: Scale, vertical: Scale, width: float) -> list[str]:
    """The labels of points, each above its point; one that would cover another is left out.

    Those of points without a value come first: nothing else says why.
    """
    parts: list[str] = []
    taken: list[tuple[float, float, float]] = []
    labelled = [point for one in series for point in one.known if point.label]
    for point in sorted(labelled, key=lambda point: point.y is not None):
        shown = fit(point.label, 120, SMALL)
        half = width_of(shown, SMALL) / 2
        x = min(max(horizontal.at(point.x), half), width - half)
        y = (vertical.start - 8 if point.y is None else vertical.at(point.y)) - 9
        if all(abs(y - other) > SMALL or x + half < left or x - half > right for other, left, right in taken):
            taken.append((y, x - half, x + half))
            parts.append(label(x, y, shown, size=SMALL, anchor="middle"))
    return parts


def _cut_notes(points: Sequence[Point], top: float, y: Axis) -> list[str]:
    beyond = [point.y for point in points if point.y is not None and point.y > top]
    if not beyond:
        return []
    largest = y.with_unit(max(beyond))
    return [f"{len(beyond)} of {len(points)} values lie above the axis (triangles); the largest is {largest}"]


def _table(series: Sequence[Series], x: Axis, y: Axis) -> Table:
    """One row per x and a column per series if all have equal x and no interval; else one row per point."""
    columns = {tuple(point.x for point in one.known) for one in series}
    points = [point for one in series for point in one.known]
    interval = any(point.low is not None for point in points)
    labelled = any(point.label for point in points)
    if len(series) > 1 and len(columns) == 1 and not interval and not labelled:
        headings = (x.heading, *(f"{one.name}: {y.heading}" for one in series))
        cells = zip(*([y.cell(p.y, p.note) for p in one.known] for one in series), strict=True)
        return Table(
            headings, tuple((x.cell(at), *row) for at, row in zip(columns.pop(), cells, strict=True))
        )
    named = any(one.name for one in series)
    headings = (
        *(("series",) if named else ()), x.heading, y.heading,
        *(("95 % low", "95 % high") if interval else ()), *(("point",) if labelled else ()),
    )  # fmt: skip
    cells_of_points: list[tuple[str, ...]] = []
    for one in series:
        for point in one.known:
            row = [*([one.name] if named else []), x.cell(point.x), y.cell(point.y, point.note)]
            row += ["" if end is None else y.cell(end) for end in (point.low, point.high)] if interval else []
            cells_of_points.append((*row, point.label) if labelled else tuple(row))
    return Table(headings, tuple(cells_of_points))
