"""The figures of a result's page: repeats, quality over time, step times, telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suite.figures.axis import Axis
from suite.figures.frame import Style, style
from suite.figures.lines import Point, Series, lines
from suite.figures.one_result import step_ecdf, step_histogram, step_trace
from suite.figures.one_result import telemetry as telemetry_figure
from suite.figures.svg import NARROW, WIDTH
from suite.metrics.curves import TELEMETRY
from suite.metrics.metric import Metric
from suite.site import parts
from suite.site.collect import Result
from suite.site.html import Html, Node, tag

_HALF = 580.0  # px: two figures side by side
_WIDTHS = (_HALF, NARROW)


def repeats(result: Result) -> Node:
    """The repeats as points and as a table."""
    completed = [one for one in result.facts["repeats"] if one["window_ns"]]
    if not completed or result.row.group[2] == "quality":
        return None
    unit = result.row.unit
    names = (f"{unit}/s", "window / s", unit, "median step / ms")
    heads = ["repeat", *(parts.head(name, numeric=True) for name in names)]
    rows = [tag("tr", tag("th", str(one["index"]), scope="row"), _repeat_cells(one)) for one in completed]
    points = tuple(Point(float(one["index"]), rate) for one in completed if (rate := parts.rate_of(one)))
    drawn = None
    if points:
        axis = Axis("repeat", ticks=tuple(point.x for point in points))
        title, note = "Throughput of each repeat", "the vertical axis does not begin at 0"
        series = [Series("", points, style(0), line=False)]
        vertical = Axis("throughput", f"{unit}/s")
        wide, narrow = (lines(title, axis, vertical, series, notes=[note], width=width) for width in _WIDTHS)
        drawn = parts.plot(wide, "repeats", parts.watermark_of(result), narrow=narrow, numbers=False)
    caption = "Each repeat is a fresh start of all ranks"
    return tag(
        "section", tag("h2", "Repeats"), tag("div", drawn, parts.table(heads, rows, caption), class_="plots")
    )


def _repeat_cells(one: Mapping[str, Any]) -> list[Html]:
    median = None if one["step_p50_ns"] is None else one["step_p50_ns"] / 1e6
    return [
        parts.number(Metric(parts.rate_of(one)), "repeat_per_s"),
        parts.number(Metric(one["window_ns"] / 1e9), "repeat_window_s"),
        tag(
            "td", f"{one['units']:,}" if one["units"] else parts.DASH, class_="n", data_metric="repeat_units"
        ),
        parts.number(Metric(median), "repeat_step_p50_ms"),
    ]


def steps(result: Result, details: Mapping[str, Any]) -> Node:
    """The distribution of step times, and their order within the repeats."""
    curves = details.get("curves")
    if not curves:
        return None
    heading = tag("h2", "Step times")
    if not curves["steps_ns"]:
        return tag("section", heading, tag("p", f"Not shown: {curves['steps_reason']}."))
    across = parts.watermark_of(result)
    both = []
    for ids, draw in (("steps", step_histogram), ("ecdf", step_ecdf)):
        wide, narrow = (draw(curves, width=width) for width in _WIDTHS)
        both.append(parts.plot(wide, ids, across, narrow=narrow))
    trace = parts.plot(step_trace(curves), "trace", across, narrow=step_trace(curves, width=NARROW))
    return tag("section", heading, tag("div", both, class_="plots"), trace)


def curve(result: Result, details: Mapping[str, Any]) -> Node:
    """The quality of a quality run at each evaluation, with the target."""
    found = details.get("evaluations")
    target = parts.value_of(result.row.metrics.get("quality_target"))
    if not found or target is None:
        return None
    by_repeat: dict[int, list[Point | None]] = {}
    for one in found:
        by_repeat.setdefault(one["repeat"], []).append(Point(one["elapsed_ns"] / 1e9, one["value"]))
    series = [Series(f"run {index}", tuple(points), style(index)) for index, points in by_repeat.items()]
    last = max(one["elapsed_ns"] for one in found) / 1e9
    line = Style("currentColor", style(0).marker, "1 4")
    series.append(Series("target", (Point(0.0, target), Point(last, target)), line, markers=False))
    axis = Axis(str(result.row.metrics["quality_target"].unit))
    time = Axis("time since the first touch of the data", "s")
    wide, narrow = (lines("Quality over time", time, axis, series, width=width) for width in (WIDTH, NARROW))
    drawn = parts.plot(wide, "quality", parts.watermark_of(result), narrow=narrow)
    return tag("section", tag("h2", "Quality"), drawn)


def telemetry(result: Result, details: Mapping[str, Any]) -> Node:
    """What was sampled over the run, one figure for each quantity."""
    curves = details.get("curves")
    if not curves:
        return None
    found = curves["telemetry"]
    drawn = [
        parts.plot(
            telemetry_figure(curves, name, width=NARROW),  # small: a wide screen has three in a row
            f"telemetry-{name}".replace("_", "-"),
            parts.watermark_of(result),
        )
        for name in TELEMETRY
        if not found[name]["reason"]
    ]
    absent: dict[str, list[str]] = {}
    for name in TELEMETRY:
        if found[name]["reason"]:
            absent.setdefault(found[name]["reason"], []).append(found[name]["label"])
    texts = [f"{', '.join(labels)} ({reason})" for reason, labels in absent.items()]
    note = tag("p", f"Not sampled: {'; '.join(texts)}.", class_="note") if texts else None
    return tag("section", tag("h2", "Telemetry over the run"), tag("div", drawn, class_="plots small"), note)
