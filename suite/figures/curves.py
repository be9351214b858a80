"""Figures of the step times and the telemetry of results, from the curves of their logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from suite.compare.settings import FIRST, name_of
from suite.figures import one_result
from suite.figures.axis import Axis
from suite.figures.distribution import Sample, cumulative
from suite.figures.frame import STYLES
from suite.figures.one_result import Curves
from suite.figures.results import (
    Measured,
    Panel,
    framework_of,
    framework_style,
    name_in,
    obvious,
    order,
    panels,
    subject_of,
    watermark,
)
from suite.figures.svg import Figure

STEP_HISTOGRAM, STEP_ECDF, STEP_TRACE, TELEMETRY = "step_histogram", "step_ecdf", "step_trace", "telemetry"
METRICS = (STEP_HISTOGRAM, STEP_ECDF, STEP_TRACE, TELEMETRY)
_MOST_LINES = len(STYLES)  # of a figure of distributions


def curve_figures(
    results: Iterable[Measured], metric: str, curves_of: Callable[[Measured], Curves | None]
) -> list[Figure]:
    """The figures of ``metric``, one of :data:`METRICS`; ``curves_of`` is :mod:`suite.metrics.curves`'s.

    Distributions of several results of a workload share a figure; the others are of one result each.
    """
    drawn: list[Figure] = []
    for panel in panels(results):
        found = [(one, curves) for one in panel.results if (curves := curves_of(one)) is not None]
        if metric == STEP_ECDF and len(found) > 1:
            known = [(one, curves) for one, curves in found if curves["steps_ns"]]
            known.sort(key=lambda item: order(item[0], panel.differ))
            starts = range(0, len(known), _MOST_LINES)
            drawn += [_distributions(panel, known[start : start + _MOST_LINES]) for start in starts]
            continue
        for one, curves in found:
            across = watermark(one.group[0])
            drawn += [figure.with_watermark(across) for figure in _of_one(one, curves, metric)]
    return drawn


def _of_one(one: Measured, curves: Curves, metric: str) -> list[Figure]:
    """The figures of one result; none without the times or samples that they show."""
    said = name_of(one.settings, [name for name in FIRST if not obvious(name, one.settings)])
    if metric == TELEMETRY:
        known = [name for name, quantity in curves["telemetry"].items() if quantity["series"]]
        return [one_result.telemetry(curves, name, said) for name in known]
    draw = {
        STEP_HISTOGRAM: one_result.step_histogram,
        STEP_ECDF: one_result.step_ecdf,
        STEP_TRACE: one_result.step_trace,
    }[metric]
    return [draw(curves, said)] if curves["steps_ns"] else []


def _distributions(panel: Panel, some: Sequence[tuple[Measured, Curves]]) -> Figure:
    """The cumulative distributions of step times, one line per result."""
    samples = []
    for index, (one, curves) in enumerate(some):
        times = tuple(ns / 1e6 for repeat in curves["steps_ns"] for rank in repeat for ns in rank)
        style = framework_style(framework_of(one), index)
        samples.append(Sample(name_in(one, panel.differ), times, style))
    title = f"Distribution of step times: {subject_of(panel.results[0].settings)}"
    notes = panel.notes("all measured steps of all repeats")
    figure = cumulative(title, Axis("step time", "ms"), samples, subtitle=panel.common(), notes=notes)
    return figure.with_watermark(watermark(panel.group[0]))
