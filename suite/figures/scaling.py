"""The figure of a scaling set: throughput on N devices as a share of N single devices."""

from __future__ import annotations

from suite.compare.scaling import CheckedSet
from suite.compare.scaling_set import INDEPENDENT, SYNCHRONOUS
from suite.figures.axis import Axis
from suite.figures.frame import STYLES, Style
from suite.figures.lines import Point, Series, lines
from suite.figures.svg import WIDTH, Figure
from suite.report.scaling_table import heading, notes

_ARMS = {
    INDEPENDENT: ("independent: what is lost is contention", STYLES[1]),
    SYNCHRONOUS: ("synchronous: what is lost further is synchronisation", STYLES[0]),
}


def scaling(checked: CheckedSet, width: float = WIDTH) -> Figure:
    """A line per arm with 95 % intervals, below the line of 100 %; devices on the horizontal axis."""
    counts = [float(one.devices) for one in checked.figures]
    ideal = tuple(Point(count, 100.0) for count in (1.0, *counts))
    series = [Series("ideal: N single devices", ideal, Style("currentColor", dash="1 4"), markers=False)]
    for name, (said, style) in _ARMS.items():
        shares = [(float(one.devices), one.shares[name]) for one in checked.figures if name in one.shares]
        points = [
            Point(count, 100 * one.value, 100 * one.low, 100 * one.high)
            if one.freedom
            else Point(count, 100 * one.value)
            for count, one in shares
        ]
        if points:
            series.append(Series(said, (Point(1.0, 100.0), *points), style))
    ticks = (1.0, *counts)
    horizontal = Axis("devices N", log=ticks[-1] > 8, ticks=ticks)
    vertical = Axis("throughput, share of N single devices", "%", zero=True)
    said, below = heading(checked), notes(checked)
    return lines("Scaling", horizontal, vertical, series, subtitle=said, notes=below, width=width)
