"""Figures of many results: one metric, one panel per benchmark, one bar per framework.

Units and magnitudes differ between workloads, so each panel has its own axis, which begins at 0. Colours are
those of Okabe and Ito (2008), distinguishable with any colour vision; hatching and the framework's name below
each bar identify the framework as well.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.compare.result_row import OOM
from suite.contract.traits import framework_names, reference_framework, traits_of
from suite.log.safe import LIMIT, safe
from suite.log.units import significant
from suite.metrics.metric import Metric
from suite.report.grid import GridEntry

# metric -> (its name in a row, names of the lower and upper end of its 95 % interval or "", axis label)
METRICS = {
    "throughput": ("throughput_per_s", "throughput_low_per_s", "throughput_high_per_s", "throughput"),
    "step_time": ("step_mean_ms", "step_mean_low_ms", "step_mean_high_ms", "mean step time"),
    "step_p50": ("step_p50_ms", "", "", "median step time"),
    "step_p99": ("step_p99_ms", "", "", "99th percentile of step time"),
    "peak_memory": ("", "", "", "peak memory"),  # of the device, or of the host if no result has the former
    "peak_host_memory": ("peak_host_memory_bytes", "", "", "peak host memory"),
    "peak_device_memory": ("peak_device_memory_bytes", "", "", "peak device memory"),
    "files_read": ("files_read_mb_per_s", "", "", "files read in a conversion"),
    "shards_written": ("shards_written_mb_per_s", "", "", "shards written in a conversion"),
    "time_to_quality": ("time_to_quality_s", "", "", "time to quality"),
    "quality": ("quality", "", "", "quality"),
    "input_wait": ("input_wait_percent", "", "", "waiting for input"),
    "gpu_power": ("gpu_power_w", "", "", "power of a GPU"),
    "gpu_utilisation": ("gpu_utilisation_percent", "", "", "GPU utilisation"),
    "cpu_cores": ("cpu_worker_cores", "", "", "processor cores used"),
    "setup": ("setup_s", "", "", "set-up"),
    "compile": ("compile_s", "", "", "compilation"),
    "spread": ("cv_percent", "", "", "CV of the repeats"),
}
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
_COLOUR_OF_OTHERS = "#CC79A7"  # of frameworks that this checkout does not have
_COLUMNS = 4
_PANEL = (2.9, 2.7)  # inches
_NARROWEST = 6.4
STYLE = {"font.size": 8, "hatch.linewidth": 0.6, "svg.fonttype": "none", "svg.hashsalt": "suite"}
_TEXT: dict[str, Any] = {"ha": "center", "va": "bottom", "rotation": 90, "weight": "bold", "color": "0.25"}
_WHISKER: dict[str, Any] = {"color": "black", "capsize": 3}
_BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


class NoMetricToDraw(ValueError):
    """No result has the metric; the message names the sheet and the metric."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The content of one figure: the results of one group on one device."""

    group: tuple[str, str, str, str]
    device: str
    panels: tuple[tuple[str, dict[str, GridEntry]], ...]  # benchmark -> framework -> cell

    @property
    def name(self) -> str:
        """The sheet's name in file names."""
        device = "".join(c if c.isalnum() else "-" for c in self.device.lower())[:60].strip("-")
        return "-".join([*(name or "unknown" for name in self.group), *([device] if device else [])])


def sheets(entries: Sequence[GridEntry]) -> tuple[Sheet, ...]:
    """The newest cell of each benchmark and framework, by group and device.

    A cell without a result has no device and is part of every sheet of its group.
    """
    groups: dict[tuple[tuple[str, str, str, str], str], dict[str, dict[str, GridEntry]]] = {}
    for entry in entries:
        if entry.row is not None:
            cells = groups.setdefault((entry.group, entry.device), {}).setdefault(entry.benchmark, {})
            other = cells.get(entry.framework)
            if other is None or other.row is None or other.row.run_id < entry.row.run_id:
                cells[entry.framework] = entry
    for entry in entries:
        if entry.row is None:
            for (group, _), panels in groups.items():
                if group == entry.group:
                    panels.setdefault(entry.benchmark, {}).setdefault(entry.framework, entry)
    return tuple(
        Sheet(group, device, tuple(sorted(panels.items())))
        for (group, device), panels in sorted(groups.items(), key=lambda item: item[0])
    )


def draw(sheet: Sheet, metric: str, out: Path) -> None:
    """Draw ``metric`` of one sheet into the file ``out``; its suffix (.svg, .png, .pdf) sets the format.

    Raises ImportError without matplotlib, NoMetricToDraw where no cell has the metric, OSError.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # needs no display
    from matplotlib import pyplot as plt

    names = _frameworks(sheet)
    if metric == "peak_memory":
        all_cells = (cell for _, cells in sheet.panels for cell in cells.values())
        on_device = any(_metric(cell, "peak_device_memory")[0] for cell in all_cells)
        metric = "peak_device_memory" if on_device else "peak_host_memory"
    if not any(_metric(cell, metric)[0] for _, cells in sheet.panels for cell in cells.values()):
        raise NoMetricToDraw(f"no result of {sheet.name} has the metric {metric}")
    columns = min(_COLUMNS, len(sheet.panels))
    rows = -(-len(sheet.panels) // columns)
    width = max(columns * _PANEL[0], _NARROWEST)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(width, rows * _PANEL[1] + 0.7), squeeze=False, layout="constrained"
        )
        try:
            flat = list(axes.flat)
            for axis, (benchmark, cells) in zip(flat, sheet.panels, strict=False):
                _panel(axis, benchmark, cells, names, metric)
            for axis in flat[len(sheet.panels) :]:
                axis.set_axis_off()
            figure.suptitle(wrapped(_title(sheet, metric), int(width * 13)), fontsize=10)
            caption = wrapped(_caption(metric), int(width * 18))
            figure.supxlabel(caption, x=0.01, ha="left", fontsize=7)
            metadata = {"Date": None} if out.suffix == ".svg" else None  # equal figures are equal files
            figure.savefig(out, dpi=150, metadata=metadata)
        finally:
            plt.close(figure)


def _frameworks(sheet: Sheet) -> list[str]:
    names = {name for _, cells in sheet.panels for name in cells}
    return sorted(
        names, key=lambda name: (name not in framework_names(), name != reference_framework(), name)
    )


def _style(name: str, names: Sequence[str]) -> tuple[str, str]:
    colour = traits_of(name).colour if name in framework_names() else _COLOUR_OF_OTHERS
    return colour, _HATCHES[names.index(name) % len(_HATCHES)]


def _panel(axis: Any, benchmark: str, cells: dict[str, GridEntry], names: Sequence[str], metric: str) -> None:
    """The bars of one benchmark."""
    values = {name: _metric(cells[name], metric) for name in names if name in cells}
    known = [value for value, *_ in values.values() if value is not None]
    scale, unit = _scaled(known)
    most = max([float(one.value or 0) for one in known], default=0.0)
    ends = [high for *_, high in values.values() if high is not None]
    # A wide interval must not flatten the bars: beyond twice the tallest it is cut, and its end is labelled.
    top = min(max([most, *ends]), 2 * most) or 1.0
    for at, name in enumerate(names):
        measured, low, high = values.get(name, (None, None, None))
        if name not in cells or measured is None or measured.value is None:
            axis.text(at, 0, f" {_missing(cells.get(name))}", **_TEXT)
            continue
        colour, hatch = _style(name, names)
        value, end = float(measured.value), min(high or 0.0, top)
        axis.bar(at, value / scale, 0.7, color=colour, hatch=hatch, edgecolor="black", linewidth=0.6)
        label = significant(value / scale)
        if low is not None and high is not None:
            axis.errorbar(at, value / scale, [[(value - low) / scale], [(end - value) / scale]], **_WHISKER)
            if high > end:
                axis.plot(at, end / scale, marker="^", color="black")
                label += f"\n(to {significant(high / scale)})"
        label += "\ninput-bound" if cells[name].input_bound and metric == "throughput" else ""
        axis.text(at, (max(value, end) + 0.03 * top) / scale, label, ha="center", va="bottom")
    axis.set_ylim(0, 1.25 * top / scale)
    axis.set_xticks(range(len(names)), [literal(name) for name in names])
    axis.set_xlim(-0.6, len(names) - 0.4)
    axis.set_ylabel(literal(unit))
    axis.set_title(wrapped(literal(benchmark), 30), fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.yaxis.set_major_formatter(lambda value, _: significant(value) if value else "0")
    if not known:
        axis.set_yticks([])


def literal(text: str, limit: int = LIMIT) -> str:
    """Text of a log, escaped: matplotlib would typeset text between dollar signs as a formula, or fail."""
    return safe(text, limit).replace("$", r"\$")


def _missing(cell: GridEntry | None) -> str:
    """The text shown instead of a bar."""
    if cell is None:
        return "-"
    return "null" if cell.row is not None and cell.status != OOM else cell.status


def wrapped(text: str, width: int) -> str:
    """``text`` in lines of at most ``width`` characters."""
    return "\n".join(textwrap.wrap(text, width))


def _metric(cell: GridEntry, metric: str) -> tuple[Metric | None, float | None, float | None]:
    """(the metric, the lower and the upper end of its interval); None where it has no value."""
    name, low, high, _ = METRICS[metric]
    metrics = cell.row.metrics if cell.row is not None else {}
    measured = metrics.get(name)
    if measured is None or measured.value is None:
        return None, None, None
    lower, upper = (metrics[end].value if end in metrics else None for end in (low, high))
    return measured, lower, upper


def _scaled(known: Sequence[Metric]) -> tuple[float, str]:
    """(divisor, scaled unit) for the values of one panel."""
    if not known:
        return 1.0, ""
    unit = known[0].unit
    largest = max(float(one.value or 0) for one in known)
    if unit != "bytes":
        return (1e6, f"million {unit}") if largest >= 1e6 else (1.0, unit)
    name, size = next(((name, size) for name, size in _BINARY if largest >= size), ("B", 1))
    return float(size), name


def _title(sheet: Sheet, metric: str) -> str:
    division, scale, data, mode = (literal(name or "unknown") for name in sheet.group)
    device = f", {literal(sheet.device)}" if sheet.device else ""
    return f"{METRICS[metric][3]}: {division} division, {scale} scale, {data} data, {mode} mode{device}"


def _caption(metric: str) -> str:
    interval = (
        "error bars: 95 % interval, Student t over five repeats" if METRICS[metric][1] else "no interval"
    )
    return (
        f"{interval}; the newest accepted result of each; OOM: out of memory; N/A: not supported; null: not "
        "measured; -: not run"
    )
