"""What all kinds of figures share: styles of series, title, legend, axes with their grid, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.figures.axis import Axis, Scale, scale
from suite.figures.svg import (
    LARGE,
    MUTED,
    SIZE,
    SMALL,
    element,
    fit,
    group,
    label,
    line,
    number,
    paragraph,
    width_of,
    wrapped,
)

_LINE_STEP = 18.0  # px between rows of the legend
_SWATCH = 30.0
MOST_LINES = 8  # of one name: only one that is longer than any honest name is cut
PAD = 10.0  # px between the ends of a horizontal axis and its first and last value
CIRCLE, SQUARE, TRIANGLE, DIAMOND = "circle", "square", "triangle", "diamond"
CROSS, PLUS, DOWN = "cross", "plus", "down"


@dataclass(frozen=True, slots=True)
class Style:
    """How a series looks. Colour is never alone: the marker and the dashes differ too."""

    colour: str
    marker: str = CIRCLE
    dash: str | None = None


# Of Okabe and Ito (2008), distinguishable with any colour vision; yellow is left out: too light on white.
STYLES = (
    Style("#0072B2", CIRCLE),
    Style("#E69F00", SQUARE, "6 3"),
    Style("#009E73", TRIANGLE, "2 2"),
    Style("#CC79A7", DIAMOND, "8 3 2 3"),
    Style("#D55E00", CROSS, "4 4"),
    Style("#56B4E9", PLUS, "1 3"),
    Style("currentColor", DOWN, "10 4"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a legend. ``kind``: line, point, ideal, window, phase, missing."""

    name: str
    kind: str
    style: Style = STYLES[0]


def style(index: int) -> Style:
    """The style of the series with this index; they repeat."""
    return STYLES[index % len(STYLES)]


def marker(style: Style, x: float, y: float, size: float = 4.0, hollow: bool = False) -> str:
    """The marker of a series at a point, with an outline that shows on any background."""
    shapes = {
        SQUARE: (-1, -1, 1, -1, 1, 1, -1, 1),
        TRIANGLE: (0, -1.25, 1.15, 0.9, -1.15, 0.9),
        DOWN: (0, 1.25, 1.15, -0.9, -1.15, -0.9),
        DIAMOND: (0, -1.35, 1.35, 0, 0, 1.35, -1.35, 0),
    }
    fill = "none" if hollow else style.colour
    outline = style.colour if hollow else "currentColor"
    if style.marker in (CROSS, PLUS):
        path = "M-1-1L1 1M-1 1L1-1" if style.marker == CROSS else "M0-1.3V1.3M-1.3 0H1.3"
        return element(
            "path", d=path, stroke=style.colour, stroke_width=f"{(1 if hollow else 2.4) / size:.3g}",
            transform=f"translate({number(x)} {number(y)}) scale({number(size)})",
        )  # fmt: skip
    if style.marker == CIRCLE:
        return element("circle", cx=x, cy=y, r=size, fill=fill, stroke=outline, stroke_width="0.8")
    points = shapes[style.marker]
    corners = [
        f"{number(x + size * dx)},{number(y + size * dy)}"
        for dx, dy in zip(points[::2], points[1::2], strict=True)
    ]
    return element("polygon", points=" ".join(corners), fill=fill, stroke=outline, stroke_width="0.8")


def heading(title: str, subtitle: str, legend: Sequence[Entry], width: float) -> tuple[str, float]:
    """Title, subtitle and legend from the top of the figure, and the y where they end."""
    bold = 1.1 * LARGE  # bold letters are wider than the estimate, which is for regular ones
    shown, bottom = paragraph(0, 0, wrapped(title, width, bold, 3), size=LARGE, weight="bold")
    if subtitle:
        below, bottom = paragraph(0, bottom + 2, wrapped(subtitle, width, SIZE, 6), opacity=MUTED)
        shown += below
    if legend:
        x, bottom = 0.0, bottom + _LINE_STEP + 2
        for entry in legend:
            first, *others = wrapped(entry.name, width - _SWATCH, most=MOST_LINES) or [""]
            taken = _SWATCH + width_of(first)
            if x and (others or x + taken > width):
                x, bottom = 0.0, bottom + _LINE_STEP
            shown += _swatch(entry, x, bottom - 4) + label(x + _SWATCH, bottom, first)
            for one in others:
                bottom += 1.25 * SIZE
                shown += label(_SWATCH, bottom, one)
            x = width if others else x + taken + 14  # after several lines the next entry begins a row
    return shown, bottom + 6


def _swatch(entry: Entry, x: float, y: float) -> str:
    middle = x + _SWATCH / 2 - 3
    if entry.kind in ("window", "phase"):
        opacity, dash = (0.16, None) if entry.kind == "window" else (0.06, "2 2")
        return element(
            "rect", x=x + 2, y=y - 5, width=20.0, height=10.0, fill_opacity=f"{opacity}",
            stroke="currentColor", stroke_width="0.6", stroke_dasharray=dash,
        )  # fmt: skip
    if entry.kind == "ideal":
        return line(x, y, x + 24, y, stroke_dasharray="1 4", stroke_width="1.5")
    if entry.kind == "missing":
        return missing(middle, y)
    shown = marker(entry.style, middle, y)
    if entry.kind == "line":
        shown = (
            line(
                x,
                y,
                x + 24,
                y,
                stroke=entry.style.colour,
                stroke_width="1.8",
                stroke_dasharray=entry.style.dash,
            )
            + shown
        )
    return shown


def missing(x: float, y: float) -> str:
    """The sign for a value that could not be measured."""
    path = f"M{number(x - 4)} {number(y - 4)}l8 8m0-8l-8 8"
    return element("path", d=path, stroke="currentColor", stroke_width="1.2", stroke_opacity="0.7")


def whisker(x: float, low: float, high: float, style: Style, cut: bool = False) -> str:
    """A vertical interval from y = ``low`` to ``high``; ``cut``: an arrow instead of the upper cap."""
    cap = f"M{number(x - 4)} {number(high)}h8"
    top = f"M{number(x - 3)} {number(high + 5)}l3 -5l3 5" if cut else cap
    path = f"M{number(x)} {number(low)}V{number(high)}{top}M{number(x - 4)} {number(low)}h8"
    return element("path", d=path, fill="none", stroke=style.colour, stroke_width="1.4")


def horizontal(axis: Axis, values: Sequence[float], left: float, width: float) -> Scale:
    """The scale of a horizontal axis right of ``left``, with room for the labels at its ends."""
    return scale(axis, values, left + PAD, width - 2 * PAD, most=8)


def left_margin(axis: Scale) -> float:
    """The width that the labels of a vertical axis need."""
    return max(width_of(name, SMALL) for _, name in axis.ticks) + 8


def vertical_axis(axis: Scale, left: float, right: float) -> str:
    """Grid lines with their labels, and the title of the axis above them."""
    parts = []
    for value, name in axis.ticks:
        y = axis.at(value)
        parts.append(line(left, y, right, y, stroke_opacity="0.15"))
        parts.append(label(left - 6, y + 4, name, size=SMALL, anchor="end"))
    title = label(0, axis.end - 10, fit(axis.title, right), size=SMALL, opacity=MUTED)
    return group(*parts) + title


def horizontal_axis(
    axis: Scale, bottom: float, width: float, grid: Sequence[tuple[float, float]] = ()
) -> tuple[str, float]:
    """The axis at ``bottom`` of a figure with its labels, and the y where they end.

    ``grid``: from y to y of the lines above it.
    """
    parts = [line(axis.start - PAD, bottom, axis.end + PAD, bottom, stroke_opacity="0.6")]
    parts += [
        line(axis.at(value), top, axis.at(value), end, stroke_opacity="0.15")
        for value, _ in axis.ticks
        for top, end in grid
    ]
    for x in (axis.at(value) for value, _ in axis.ticks):
        parts.append(line(x, bottom, x, bottom + 4, stroke_opacity="0.6"))
    for x, name in axis.labelled(SMALL, width):
        parts.append(label(x, bottom + 16, name, size=SMALL, anchor="middle"))
    middle = (axis.start + axis.end) / 2
    title = fit(axis.title, axis.end - axis.start, SMALL)
    parts.append(label(middle, bottom + 32, title, size=SMALL, anchor="middle", opacity=MUTED))
    return group(*parts), bottom + 36


def footnotes(notes: Sequence[str], top: float, width: float) -> tuple[str, float]:
    """Notes below a figure, and the y where they end."""
    shown, bottom = paragraph(0, top, wrapped("; ".join(notes), width, SMALL, 8), size=SMALL, opacity=MUTED)
    return shown, bottom + 4
