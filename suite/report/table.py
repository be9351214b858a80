"""The table of one result, as ``make run`` prints it; plain text when not on a terminal, 80 columns wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from suite.compare.result_row import OOM
from suite.contract import LOAD
from suite.log.model import Record
from suite.log.safe import safe
from suite.log.units import quantity
from suite.metrics.energy import NO_DEVICE
from suite.metrics.image import image_of, limits_text
from suite.metrics.long_run import long_run_text
from suite.metrics.machine import at, facts, storage_text
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of, title
from suite.metrics.slow_rank import slow_rank_text
from suite.report.explanation import explain_speed
from suite.report.wall_time import wall_time

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_table", "quantity", "sentence", "show"]

# One row of the table: its label and its metrics, each with the prefix shown before it.
_ROWS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("throughput", (("", "throughput_per_s"),)),
    ("95 % interval", (("", "throughput_low_per_s"), ("to", "throughput_high_per_s"))),
    ("CV of repeats", (("", "cv_percent"),)),
    ("files read", (("", "files_read_mb_per_s"), ("", "files_read_bytes"))),
    ("shards written", (("", "shards_written_mb_per_s"), ("", "shards_written_bytes"))),
    ("delivered", (("", "batches_delivered_mb_per_s"), ("", "batches_delivered_bytes"))),
    ("quality", (("", "quality"), ("target", "quality_target"))),
    ("time to quality", (("", "time_to_quality_s"),)),
    ("step time", (("p50", "step_p50_ms"), ("p90", "step_p90_ms"), ("p99", "step_p99_ms"))),
    ("loss", (("before", "loss_first"), ("after", "loss_last"))),
    ("peak memory", (("host", "peak_host_memory_bytes"), ("device", "peak_device_memory_bytes"))),
    (
        "CPU",
        (("worker", "cpu_worker_cores"), ("all", "cpu_host_cores"), ("throttled", "cpu_throttled_percent")),
    ),
    (
        "GPU",
        (
            ("busy", "gpu_utilisation_percent"),
            ("clock", "gpu_sm_clock_mhz"),
            ("", "gpu_temperature_c"),
            ("power", "gpu_power_w"),
            ("throttled", "gpu_throttled_percent"),
        ),
    ),
    ("input wait", (("", "input_wait_percent"),)),
    ("set-up", (("", "setup_s"), ("compile", "compile_s"))),
)
_SCORES = (
    *("throughput", "95 % interval", "CV of repeats", "files read", "shards written"),
    *("quality", "time to quality"),
)
_CURVE_WIDTH = 32
_TITLE = 400


def print_table(record: Record, console: Console | None = None) -> None:
    """Print the table of ``record`` and one line that explains its speed.

    Without ``console`` it goes to standard output: coloured on a terminal, plain in a pipe or with NO_COLOR.
    """
    from rich.console import Console as RichConsole
    from rich.table import Table
    from rich.text import Text

    console = console or RichConsole(highlight=False, soft_wrap=False)
    metrics = metrics_of(record)
    console.print(Text(safe(title(record), _TITLE), style="bold"))
    if not record.completed:
        outcome = (record.outcome or "without an end").replace("_", " ")
        console.print(Text(f"NO SCORE: this run ended {outcome}; the table covers its completed repeats."))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    no_memory = record.outcome == "out_of_memory"
    if no_memory:
        label = "time to quality" if record.mode == "quality" else "throughput"
        table.add_row(Text(label), Text(f"{OOM} ({out_of_memory(record)})"))
    for label, members in _ROWS:
        shown = [(prefix, metrics[name]) for prefix, name in members if name in metrics]
        if shown and not (no_memory and label in _SCORES):
            table.add_row(Text(label), Text(sentence(shown)))
    for label, text in (*_energy(metrics), *long_run_text(record, metrics), *_container(record)):
        table.add_row(Text(label), Text(text))
    console.print(table)
    for line in curve(record):
        console.print(Text(line))
    console.print(Text("why: " + explain_speed(record)))
    if ranks := slow_rank_text(record):
        console.print(Text("ranks: " + ranks))
    if spent := wall_time(record):
        console.print(Text("time: " + spent))


def _energy(metrics: Mapping[str, Metric]) -> Sequence[tuple[str, str]]:
    """The row of the energy; that a run has no accelerators is in the row of the GPU."""
    names = {"devices": "energy_devices_j_per_unit", "node": "energy_node_j_per_unit"}
    found = [(scope, metrics[name]) for scope, name in names.items() if name in metrics]
    shown = [(scope, one) for scope, one in found if one.reason != NO_DEVICE]
    return [("energy", sentence(shown))] if shown else []


def out_of_memory(record: Record) -> str:
    """Where a run ran out of memory, as text."""
    if not record.aborts:
        return "the log does not state where"
    abort = record.aborts[0]
    where = "before repeat 0" if abort.repeat is None else f"in repeat {abort.repeat}"
    return safe(f"{where}, phase {abort['phase']}: {abort['message']}", 240)


def _container(record: Record) -> Sequence[tuple[str, str]]:
    """The rows of container image, limits, disks and the decoder of a load, if any."""
    rows = []
    image = image_of(record)
    if image.closed_ready is not None:
        ready = "closed-ready" if image.closed_ready else f"not closed-ready: {image.why_not}"
        rows.append(("image", safe(f"{image.name} by {record.header['runtime']} ({ready})", 240)))
    if limits := limits_text(record):
        rows.append(("limits", safe(limits)))
    if storage := storage_text(record):
        rows.append(("disks", safe(storage, 240)))
    if record.kind == LOAD:
        settings, decoder = record.header["settings"], at(facts(record, "inside"), "decoder")
        stored, threads = settings.get("storage", "files"), settings.get("threads")
        rows.append(("decoder", safe(f"{decoder}, from {stored}, threads per rank: {threads}", 240)))
    return rows


def show(metric: Metric) -> str:
    """One value with its unit; ``null`` where it could not be measured."""
    return "null" if metric.value is None else quantity(metric.value, metric.unit)


def sentence(members: Sequence[tuple[str, Metric]]) -> str:
    """The metrics of one row with their notes; neighbours with the same note share it."""
    if (
        all(metric.value is None for _, metric in members)
        and len({note(metric) for _, metric in members}) == 1
    ):
        return f"null ({note(members[0][1])})"
    parts = []
    for remark, group in groupby(members, key=lambda member: note(member[1])):
        values = ", ".join(f"{prefix} {show(metric)}".strip() for prefix, metric in group)
        values = values.replace(", to ", " to ")  # an interval
        parts.append(f"{values} ({remark})" if remark else values)
    return "; ".join(parts)


def note(metric: Metric) -> str:
    """How a value was obtained, or why there is none."""
    return safe(metric.reason or metric.note or "")


def curve(record: Record) -> Sequence[str]:
    """The quality curve, one line with a bar per evaluation; empty in throughput mode."""
    points = [point for repeat in record.repeats for point in repeat.evaluations]
    if not points:
        return []
    values = [float.fromhex(point["value"]) for point in points]
    top = max([*values, float(points[0]["target"])]) or 1.0
    lines = ["quality over time (the bar's full width is the highest value or the target):"]
    for point, value in zip(points, values, strict=True):
        bar = "#" * round(_CURVE_WIDTH * max(value, 0.0) / top)
        reached = " reached" if point["reached"] else ""
        elapsed = point["elapsed_ns"] / 1e9
        lines.append(f"  step {point['step']:>7}  {elapsed:>8.1f} s  {value:>8.4f}  {bar}{reached}")
    return lines
