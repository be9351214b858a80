"""Figures of many results: a metric over the axis of a sweep, or of results ordered by value.

Results of different division, scale, kind of data or mode never share a figure. Within one, every setting
that differs is part of the name of a series or of a row, and what all share stands below the title.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suite.compare.result_row import ResultRow
from suite.compare.settings import FIRST, SUBJECT, differing, name_of, setting_text
from suite.contract import EXCHANGE_OPTIONS
from suite.contract.traits import framework_names, reference_framework, traits_of
from suite.figures.axis import Axis
from suite.figures.dots import Dot, dots
from suite.figures.frame import STYLES, Style
from suite.figures.lines import Point, Series, lines
from suite.figures.svg import WIDTH, Figure
from suite.report.grid import INPUT_BOUND, INPUT_BOUND_PERCENT

LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Shown:
    """A metric of results: its name in a row, names of the ends of its 95 % interval, label, order."""

    name: str
    label: str
    low: str = ""
    high: str = ""
    lowest_first: bool = False


METRICS = {
    "throughput": Shown("throughput_per_s", "throughput", "throughput_low_per_s", "throughput_high_per_s"),
    "step_time": Shown("step_mean_ms", "mean step time", "step_mean_low_ms", "step_mean_high_ms", True),
    "step_p50": Shown("step_p50_ms", "median step time", lowest_first=True),
    "step_p99": Shown("step_p99_ms", "99th percentile of step time", lowest_first=True),
    LATENCY: Shown("step_p99_ms", "99th percentile of step time", lowest_first=True),  # over throughput
    # Of the device, or of the host if no result has the former.
    "peak_memory": Shown("", "peak memory", lowest_first=True),
    "peak_host_memory": Shown("peak_host_memory_bytes", "peak host memory", lowest_first=True),
    "peak_device_memory": Shown("peak_device_memory_bytes", "peak device memory", lowest_first=True),
    "files_read": Shown("files_read_mb_per_s", "files read, in a conversion or a load"),
    "shards_written": Shown("shards_written_mb_per_s", "shards written in a conversion"),
    "batches_delivered": Shown("batches_delivered_mb_per_s", "batches delivered in a load"),
    "time_to_quality": Shown("time_to_quality_s", "time to quality", lowest_first=True),
    "quality": Shown("quality", "quality"),
    "input_wait": Shown("input_wait_percent", "waiting for input", lowest_first=True),
    "gpu_power": Shown("gpu_power_w", "mean power of a GPU", lowest_first=True),
    "gpu_utilisation": Shown("gpu_utilisation_percent", "GPU utilisation"),
    "cpu_cores": Shown("cpu_worker_cores", "processor cores used", lowest_first=True),
    "setup": Shown("setup_s", "set-up", lowest_first=True),
    "compile": Shown("compile_s", "compilation", lowest_first=True),
    "spread": Shown("cv_percent", "CV of the repeats", lowest_first=True),
}
# Settings with numbers that can be the horizontal axis, with its label; the first of equally good ones.
AXES = {
    "batch": Axis("batch per device"),
    "devices": Axis("devices"),
    "threads": Axis("threads per rank"),
    "cpus": Axis("processors of the container"),
    "memory_bytes": Axis("memory of the container", "bytes"),
}
_BEFORE_STEPS = ("setup", "compile")  # metrics of the time before the first step
_OF_START = ("reuse_compiled",)  # settings that change nothing else
_WITH_IDEAL = ("devices", "threads", "cpus")
_LOG_ABOVE = 8.0  # last over first value of a horizontal axis that is logarithmic
_INTERVAL = "intervals: 95 %, Student t over the repeats"


@dataclass(frozen=True, slots=True, eq=False)  # each is itself, so that it can be a key
class Measured:
    """One result, or a cell of a matrix that cannot run (``row`` None)."""

    group: tuple[str, str, str, str]  # division, scale, data, mode
    settings: Mapping[str, Any]
    status: str
    why: str
    row: ResultRow | None = None
    repeats: Mapping[str, Sequence[float]] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """The results of one figure, with the settings in which they differ."""

    group: tuple[str, str, str, str]
    results: tuple[Measured, ...]
    older: int  # results with equal settings that are left out
    differ: tuple[str, ...]

    def common(self, without: Iterable[str] = ()) -> str:
        """What all results have in common, as text."""
        division, scale, data, mode = (name or "unknown" for name in self.group)
        first = self.results[0].settings
        left_out = {*self.differ, *without, *(["version"] if "framework" in self.differ else [])}
        names = [name for name in FIRST if name not in left_out and not obvious(name, first)]
        shared = f"{division} division, {scale} scale, {data} data"
        shared += "" if mode == "throughput" else f", {mode}"
        return "; ".join(filter(None, (name_of(first, names), shared)))

    def notes(self, *more: str) -> list[str]:
        """What a reader must know, besides ``more``."""
        codes = {one.code for one in self.results if one.code}
        notes = list(filter(None, more))
        if len(codes) > 1:
            notes.append(f"measured with {len(codes)} versions of the suite's code")
        if self.older:
            equal = "result with settings equal to those of a newer one is"
            equals = "results with settings equal to those of a newer one are"
            notes.append(f"{self.older} {equal if self.older == 1 else equals} not shown")
        return notes


def watermark(division: str) -> str:
    """The text across the figures of a division; empty where there is none."""
    return "practice" if division == "practice" else ""


def obvious(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting has the value that a reader assumes."""
    value = settings.get(name)
    return (
        (name, value) in (("nodes", 1), ("loader", "native"), ("runtime", "native"))
        or (name == "scenario" and settings.get("phase") == "train" and value in (None, "offline"))
        or (name == "strategy" and settings.get("devices") == 1)
    )


def panels(results: Iterable[Measured]) -> list[Panel]:
    """The newest results of each workload, phase and group, one panel each."""
    found = _by(results, lambda one: (one.group, *(str(one.settings.get(name) or "") for name in SUBJECT)))
    return [_panel(key[0], some) for key, some in sorted(found.items(), key=lambda item: item[0])]


def _panel(group: tuple[str, str, str, str], results: Sequence[Measured]) -> Panel:
    """The newest of the results whose settings are all equal."""
    kept: dict[str, Measured] = {}
    for one in sorted(results, key=lambda one: one.row.run_id if one.row is not None else ""):
        kept[repr(sorted(one.settings.items()))] = one
    return Panel(group, tuple(kept.values()), len(results) - len(kept), _differ(tuple(kept.values())))


def _merged(some: Sequence[Panel]) -> Panel:
    results = tuple(one for panel in some for one in panel.results)
    return Panel(some[0].group, results, sum(panel.older for panel in some), _differ(results))


def _differ(results: Sequence[Measured]) -> tuple[str, ...]:
    """The settings that differ. A cell without a result has only a key, of which the framework may differ."""
    found = differing([one.settings for one in results if one.row is not None])
    frameworks = {framework_of(one) for one in results}
    return tuple(found if "framework" in found or len(frameworks) == 1 else ["framework", *found])


def _by(results: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for one in results:
        found.setdefault(key(one), []).append(one)
    return found


def figures(results: Iterable[Measured], metric: str, width: float = WIDTH) -> list[Figure]:
    """The figures of ``metric``, a name of :data:`METRICS`, sweeps last; none where no result has it."""
    left_out = () if metric in _BEFORE_STEPS else _OF_START
    results = [
        replace(one, settings={name: one.settings[name] for name in one.settings if name not in left_out})
        for one in results
    ]
    asked = METRICS[metric]
    if metric == "peak_memory":
        of_device = any(_value(one, METRICS["peak_device_memory"].name) is not None for one in results)
        asked = METRICS["peak_device_memory" if of_device else "peak_host_memory"]
    known = [
        panel
        for panel in panels(results)
        if any(_value(one, asked.name) is not None for one in panel.results)
    ]
    swept = {id(panel): axis_of(panel, asked.name) for panel in known}
    drawn = [
        figure
        for panel in known
        if swept[id(panel)] or metric == LATENCY
        for figure in _sweep(panel, asked, swept[id(panel)], metric == LATENCY, width)
    ]
    rest = [panel for panel in known if not swept[id(panel)] and metric != LATENCY]
    by_unit = _by(rest, lambda panel: (panel.group, _unit(panel.results, asked.name)))
    return [_ordered(_merged(some), asked, width) for some in by_unit.values()] + drawn


def _value(one: Measured, name: str) -> float | None:
    metric = one.row.metrics.get(name) if one.row is not None else None
    return None if metric is None or metric.value is None else float(metric.value)


def _unit(results: Sequence[Measured], name: str) -> str:
    metrics = (one.row.metrics.get(name) for one in results if one.row is not None)
    return next((metric.unit for metric in metrics if metric is not None and metric.value is not None), "")


def axis_of(panel: Panel, metric: str) -> str:
    """The setting that is the horizontal axis: the one that the longest series vary; empty if none does.

    Most results must lie on these lines. Many series of one point each are no sweep: their points would
    cover each other, while each result has a row of its own where results are ordered by value.
    """
    known = sum(_value(one, metric) is not None for one in panel.results)
    best, most = "", max(1, known // 2)
    for name in AXES:
        if name in panel.differ:
            series = [
                {_number(one.settings.get(name)) for one in some if _value(one, metric) is not None} - {None}
                for some in _series(panel, name).values()
            ]
            longest = sum(len(values) for values in series if len(values) > 1)
            if longest > most:
                best, most = name, longest
    return best


def _number(value: Any) -> float | None:
    try:
        found = None if value is None or isinstance(value, bool) else float(value)
    except ValueError:
        return None
    return found if found is not None and 0 < found < 1e18 else None


def _series(panel: Panel, axis: str) -> dict[tuple[str, ...], list[Measured]]:
    """Results that differ in ``axis`` alone, by the text of the other settings that differ.

    One device exchanges nothing: its result is the first point of the series of every strategy.
    """
    free = (*EXCHANGE_OPTIONS, "nodes") if axis == "devices" else ()
    names = [name for name in panel.differ if name != axis]
    bound = [name for name in names if name not in free]
    alone = [one for one in panel.results if free and one.settings.get("devices") == 1]
    found = _by((one for one in panel.results if one not in alone), lambda one: _key(one, names))
    for one in alone:
        series = [key for key, some in found.items() if _key(some[0], bound) == _key(one, bound)]
        for key in series or [_key(one, names)]:
            found.setdefault(key, []).append(one)
    return found


def _key(one: Measured, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(one.settings.get(name)) for name in names)


def framework_style(framework: str, index: int) -> Style:
    """The colour of a framework with the marker and the dashes of the series with this index."""
    colour = traits_of(framework).colour if framework in framework_names() else "currentColor"
    return replace(STYLES[index % len(STYLES)], colour=colour)


def order(one: Measured, names: Sequence[str]) -> tuple[Any, ...]:
    """The order of series: by framework, then by the settings with these names, numbers as numbers."""
    values = [(_number(one.settings.get(name)), str(one.settings.get(name))) for name in names]
    by_value = [(number is None, number or 0.0, text) for number, text in values]
    return (framework_order(framework_of(one)), by_value)


def framework_order(framework: str) -> tuple[bool, bool, str]:
    """The order of frameworks: the reference first, unknown ones last."""
    names = framework_names()
    return (framework not in names, framework != reference_framework(), framework)


def _sweep(panel: Panel, asked: Shown, axis: str, latency: bool, width: float) -> list[Figure]:
    """A line per framework and other settings, over the axis of a sweep; ``latency``: over the throughput.

    More lines than there are styles have further figures.
    """
    names = [name for name in panel.differ if name != axis]
    groups = sorted(_series(panel, axis).values(), key=lambda some: order(_largest(some), names))
    parts = [groups[start : start + len(STYLES)] for start in range(0, len(groups), len(STYLES))]
    drawn = []
    for number, part in enumerate(parts, 1):
        # Where all lines are of one framework its colour says nothing: each has a colour of its own.
        one_framework = len(part) > 1 and len({framework_of(some[0]) for some in part}) == 1
        series = []
        for index, some in enumerate(part):
            points = [point for one in some if (point := _point(one, asked, axis, latency)) is not None]
            points.sort(key=lambda point: point[0])
            name = name_in(_largest(some), names) if len(groups) > 1 else ""
            style = STYLES[index] if one_framework else framework_style(framework_of(some[0]), index)
            series.append(Series(name, tuple(point for _, point in points), style))
        which = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        drawn.append(_lines_over_axis(panel, asked, axis, latency, series, which, width))
    return drawn


def _largest(some: Sequence[Measured]) -> Measured:
    """The result with the most devices: one device exchanges nothing, and names no strategy."""
    return max(some, key=lambda one: _number(one.settings.get("devices")) or 0.0)


def name_in(one: Measured, names: Sequence[str]) -> str:
    """The settings of a result that differ, without what goes without saying."""
    # Beside other loaders the native one is named: a row with its framework alone would not say what it is.
    said = [name for name in names if name == "loader" or not obvious(name, one.settings)]
    return name_of(one.settings, said)


def _lines_over_axis(
    panel: Panel, asked: Shown, axis: str, latency: bool, series: Sequence[Series], number: str, width: float
) -> Figure:
    subject = f"{subject_of(panel.results[0].settings)}{number}"
    points = [point for one in series for point in one.known]
    if latency:
        horizontal = Axis("throughput", _unit(panel.results, METRICS["throughput"].name), zero=True)
        title = f"Latency over throughput: {subject}"
    else:
        xs = sorted({point.x for point in points})
        log = bool(xs) and xs[-1] / xs[0] > _LOG_ABOVE
        horizontal = replace(AXES[axis], log=log, ticks=tuple(xs))
        title = f"{_capital(asked.label)} over {AXES[axis].label}: {subject}"
    with_ideal = axis in _WITH_IDEAL and asked is METRICS["throughput"]
    figure = lines(
        title,
        horizontal,
        Axis(asked.label, _unit(panel.results, asked.name), zero=True),
        series,
        subtitle=panel.common([axis]),
        notes=panel.notes(_INTERVAL if any(point.low is not None for point in points) else ""),
        ideal=f"ideal: in proportion to the {AXES[axis].label}" if with_ideal else "",
        width=width,
    )
    return figure.with_watermark(watermark(panel.group[0]))


def framework_of(one: Measured) -> str:
    """The framework of a result; empty if unknown."""
    return str(one.settings.get("framework") or "")


def subject_of(settings: Mapping[str, Any]) -> str:
    """Workload, variant and phase as text."""
    return " ".join(str(settings[name]) for name in ("workload", "variant", "phase") if settings.get(name))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _point(one: Measured, asked: Shown, axis: str, latency: bool) -> tuple[float, Point] | None:
    """(position on the axis, point); None for a result without a position."""
    position = _number(one.settings.get(axis)) if axis else 0.0
    x = _value(one, METRICS["throughput"].name) if latency else position
    if position is None or x is None:
        return None
    value = _value(one, asked.name)
    if value is None:
        word, why = _missing(one, asked)
        return position, Point(x, None, label=word if word != "null" else "", note=why)
    low, high = (_value(one, end) if end else None for end in (asked.low, asked.high))
    label = setting_text(axis, one.settings[axis]) if latency and axis else ""
    return position, Point(x, value, low, high, label)


def _missing(one: Measured, asked: Shown) -> tuple[str, str]:
    """(the word shown instead of a value, why there is none)."""
    metric = one.row.metrics.get(asked.name) if one.row is not None else None
    if metric is not None:
        return "null", metric.reason
    return ("null" if one.status in ("accepted", "flagged") else one.status), one.why


def _ordered(panel: Panel, asked: Shown, width: float) -> Figure:
    """One row per result or, where several frameworks were measured, per setting with a marker for each."""
    frameworks = sorted({framework_of(one) for one in panel.results}, key=framework_order)
    names = [name for name in panel.differ if name != "framework"]
    shown = []
    for one in sorted(panel.results, key=lambda one: frameworks.index(framework_of(one))):
        framework = framework_of(one)
        value = _value(one, asked.name)
        low, high = (_value(one, end) if end else None for end in (asked.low, asked.high))
        note, reason = (_missing(one, asked)) if value is None else ("", "")
        wait = _value(one, "input_wait_percent")
        if asked == METRICS["throughput"] and value is not None and (wait or 0) >= INPUT_BOUND_PERCENT:
            note = INPUT_BOUND
        name = name_in(one, names) or framework
        repeats = tuple(one.repeats.get(asked.name, ())) if value is not None else ()
        style = framework_style(framework, frameworks.index(framework))
        shown.append(Dot(name, value, low, high, repeats, note, reason, framework, style))
    figure = dots(
        _capital(asked.label),
        Axis(asked.label, _unit(panel.results, asked.name)),
        shown,
        subtitle=panel.common(),
        notes=panel.notes(_INTERVAL if any(dot.low is not None for dot in shown) else ""),
        lowest_first=asked.lowest_first,
        width=width,
    )
    return figure.with_watermark(watermark(panel.group[0]))
