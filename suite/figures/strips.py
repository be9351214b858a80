"""One strip per quantity: where a value lies among those of others, as difference from their median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import median

from suite.figures import frame
from suite.figures.axis import Axis, Scale, scale
from suite.figures.frame import DIAMOND, STYLES, Entry, Style
from suite.figures.svg import (
    MUTED,
    SMALL,
    WIDTH,
    Figure,
    Table,
    described,
    element,
    fit,
    label,
    line,
    sentences,
    width_of,
)

_ROW, _BAND = 22.0, 9.0  # px of a row, and of the band of the middle four fifths
_NAMES = 0.4  # of the width at most, for the names
_LEAST_AXIS = 120.0  # px of the axis between names and texts
_MOST_POINTS = 40  # of others in a row; more are shown by the band alone
_FARTHEST = 60.0  # percent from the median; what lies beyond is at the end of the axis
_THIS, _OTHERS = Style(STYLES[4].colour, DIAMOND), STYLES[0]


@dataclass(frozen=True, slots=True)
class Strip:
    """One quantity: ``value`` and those of ``others``, at least one, all above 0 and in one unit."""

    name: str
    value: float
    others: tuple[float, ...]

    @property
    def percentile(self) -> float:
        """The share of the others that are smaller, in percent; equal ones count half."""
        below = sum(one < self.value for one in self.others)
        equal = sum(one == self.value for one in self.others)
        return 100 * (below + equal / 2) / len(self.others)

    def difference(self, value: float) -> float:
        """``value`` less the median of the others, in percent of it."""
        return 100 * (value / median(self.others) - 1)

    def quantile(self, share: float) -> float:
        """The value below which ``share`` of the others lie, linear between two of them."""
        ordered = sorted(self.others)
        at = share * (len(ordered) - 1)
        low, high = ordered[floor(at)], ordered[ceil(at)]
        return low + (at - floor(at)) * (high - low)


def strips(title: str, found: Sequence[Strip], *, subtitle: str = "", width: float = WIDTH) -> Figure:
    """The figure of ``found`` in their order."""
    axis = Axis("difference from the median of the others", "%")
    legend = [
        Entry("this machine", "point", _THIS),
        Entry("other machines; the band has the middle 80 % of them", "point", _OTHERS),
    ]
    shown, top = frame.heading(title, subtitle, legend, width)
    texts = [
        f"{one.difference(one.value):+.1f} %, percentile {one.percentile:.0f} of {len(one.others)}"
        for one in found
    ]
    left = min(_NAMES * width, max((width_of(one.name) for one in found), default=0.0)) + 12
    right = width - max((width_of(one, SMALL) for one in texts), default=0.0) - 22
    above = right - left < _LEAST_AXIS  # names and texts stand above the strips, which have the whole width
    if above:
        left, right = frame.PAD, width - frame.PAD
    ends = [one.difference(each) for one in found for each in (one.value, *one.others)]
    limited = [min(max(end, -_FARTHEST), _FARTHEST) for end in ends]
    at = scale(axis, [*limited, 0.0], left, right)
    parts, y, lanes = [shown], top + 4, []
    for one, words in zip(found, texts, strict=True):
        if above:
            name = fit(one.name, width - width_of(words, SMALL) - 12)
            parts.append(label(0, y + 15, name))
            parts.append(label(width, y + 15, words, size=SMALL, anchor="end"))
            y += 16
        else:
            parts.append(label(left - 10, y + 15, fit(one.name, left - 12), anchor="end"))
            parts.append(label(at.end + 16, y + 15, words, size=SMALL))
        lanes.append((y, y + _ROW))
        y += _ROW
        parts += _strip(one, at, y - _ROW / 2)
    lanes = lanes if above else [(top, y + 4)]
    grid, bottom = frame.horizontal_axis(at, y + 4, width, lanes)
    middle = "".join(line(at.at(0), a, at.at(0), b, stroke_opacity="0.5") for a, b in lanes)
    beyond = max(map(abs, ends), default=0.0) > _FARTHEST
    notes = [f"what is farther than {_FARTHEST:.0f} % away is at the end of the axis"] if beyond else []
    below, bottom = frame.footnotes(notes, bottom, width)
    description = sentences(title, subtitle, f"{axis.heading} of {len(found)} quantities")
    return Figure(title, description, width, bottom, "".join([*parts, grid, middle, below]), _table(found))


def _strip(one: Strip, at: Scale, y: float) -> list[str]:
    """The band and the points of the others, and the marker of the value."""

    def x(value: float) -> float:
        return at.at(one.difference(value))

    low, high = x(one.quantile(0.1)), x(one.quantile(0.9))
    parts = [
        line(x(min(one.others)), y, x(max(one.others)), y, stroke=_OTHERS.colour, stroke_opacity="0.5"),
        element(
            "rect", x=low, y=y - _BAND / 2, width=max(high - low, 1.0), height=_BAND, fill=_OTHERS.colour,
            fill_opacity="0.22",
        ),
    ]  # fmt: skip
    if len(one.others) <= _MOST_POINTS:
        parts += [
            element("circle", cx=x(each), cy=y, r=2.0, fill=_OTHERS.colour, fill_opacity=f"{MUTED:g}")
            for each in one.others
        ]
    words = f"{one.name}, this machine: {one.difference(one.value):+.1f} %"
    return [*parts, described(frame.marker(_THIS, x(one.value), y, 4.5), words)]


def _table(found: Sequence[Strip]) -> Table:
    heads = (
        "series",
        "difference (%)",
        "percentile",
        "others",
        "least (%)",
        "10 % (%)",
        "90 % (%)",
        "most (%)",
    )
    rows = []
    for one in found:
        others = (min(one.others), one.quantile(0.1), one.quantile(0.9), max(one.others))
        numbers = [f"{one.difference(each):+.1f}" for each in (one.value, *others)]
        percentile = f"{one.percentile:.0f}"
        rows.append((one.name, numbers[0], percentile, str(len(one.others)), *numbers[1:]))
    return Table(heads, tuple(rows))
