"""Tables of many results for a terminal: what all rows share is said once, what differs is a column."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from suite.compare.input_bound import input_bounds
from suite.contract import CONVERSION, LOAD
from suite.log.safe import foldable
from suite.log.units import count, significant
from suite.report.cells import narrowed, ranks_text
from suite.report.table import show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from suite.compare.result_row import ResultRow
    from suite.report.summary import Table

_SHORT_ID = 8  # characters at the end of a run id
_LONGEST = 60  # characters of a setting
_LONGEST_LINE = 400
_MOST_COLUMNS = 3  # of settings without a column of their own kind; more become footnotes
# Columns that become footnotes in a narrow terminal, in this order.
_FIRST_NOTED = ("submitter", "rules", "system", "image", "threads", "limits", "runtime", "device")
_LAST_NOTED = ("loader", "storage", "cache", "scale", "precision", "devices", "batch", "phase", "framework")
_LEAST_WIDTH = 12  # of a column whose text is longer; its words stay whole
_PIPE_WIDTH = 120  # columns of output that goes to no terminal
_GAP = 2  # columns between columns
_BEFORE_RUN_ID = 4  # figures that are more important than the whole run id
_BAD = ("rejected", "withdrawn", "OOM", "aborted", "incomplete", "error")
_USUAL = ("threads", "loader", "storage")
# Settings that another column states. All others are shown only where they differ.
_STATED = ("device", "runtime", "cpus", "cpuset", "memory_bytes", "shm_bytes", "repeats", *_USUAL)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting: the head of its column, its value in a row, and the phrase that says it for all rows."""

    head: str
    value: Callable[[ResultRow], str]
    phrase: str | Callable[[str], str] = "{}"  # empty: shown only where rows differ
    default: str = ""  # a value that need not be said


@dataclass(frozen=True, slots=True)
class _Figure:
    """One figure: the head of its column, and its text in a row."""

    head: str
    text: Callable[[ResultRow], str]


def print_tables(tables: Sequence[Table], console: Console | None = None) -> None:
    """Print a heading, what all rows share, and a table for each group of comparable results.

    Settings that do not fit into the terminal become footnotes; figures that do not fit are left out, the
    least important first, and named below. Without ``console`` the output goes to standard output: plain in
    a pipe or with NO_COLOR.
    """
    from rich.console import Console as RichConsole
    from rich.text import Text

    if console is None:
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
        console = RichConsole(highlight=False, soft_wrap=False, width=width)
    if not tables:
        console.print("No results found.")
        return
    short = False
    for number, table in enumerate(tables):
        if number:
            console.print()
        short = _print_table(table, console) or short
    for one in input_bounds(row for table in tables for row in table.rows):
        console.print()
        console.print(Text(f"input: {one.sentence}"))
    console.print()
    run = f"run: the last {_SHORT_ID} characters of the run id (results/*-<run>). " if short else ""
    console.print(
        Text(
            f"Rows compare only where all settings are equal; framework and device may differ. {run}"
            "`FORMAT=csv` has every column."
        )
    )


def _print_table(table: Table, console: Console) -> bool:
    """Print one table with its heading and notes; whether its run ids are shortened."""
    from rich.text import Text

    heading = f"{table.division} division, {kind_text(table)}: {count(len(table.rows), 'result')}"
    console.print(Text(foldable(heading), style="bold"))
    differing, shared = _split(table)
    differing, notes = _with_footnotes(table, differing, console.width)
    if shared:
        console.print(Text(("all: " if len(table.rows) > 1 else "") + ", ".join(shared)))
    figures, left_out = _fitting(table, differing, console.width)
    widths = _widths(table, differing, figures, console.width)
    console.print(_rich_table(table, differing, figures, widths))
    if notes:
        console.print("further settings:")
    for number, text in enumerate(notes, 1):
        console.print(Text(f"[{number}] {foldable(text, _LONGEST_LINE)}"))
    for row in table.rows:
        if row.why or row.ranks:
            line = "; ".join(filter(None, (f"{row.status}: {row.why}" if row.why else "", row.ranks)))
            console.print(Text(foldable(f"{figures[-1].text(row)} {line}", _LONGEST_LINE)))
    if left_out:
        console.print(Text(f"no room for: {', '.join(left_out)}", style="dim"))
    return figures[-1].text is _short


def kind_text(table: Table) -> str:
    """What the results of ``table`` are, for its heading."""
    of_jobs = {CONVERSION: "conversions", LOAD: "input pipelines alone, without a model"}
    return of_jobs.get(table.mode, f"{table.data} data, {table.mode} mode")


def _rich_table(
    table: Table, differing: Sequence[_Setting], figures: Sequence[_Figure], widths: Sequence[int | None]
) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # the box adds one column between columns
    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP - 1, 0, 0), show_edge=False)
    for setting, width in zip(differing, widths, strict=True):
        made.add_column(
            setting.head,
            overflow="ellipsis",
            width=width,
            justify="right" if _numeric(setting, table) else "left",
        )
    for figure in figures:
        made.add_column(figure.head, no_wrap=True, justify="left" if figure.head == "run" else "right")
    for row in table.rows:
        style = "red" if row.status in _BAD else "yellow" if row.status == "flagged" else ""
        cells = [
            *(Text(one.value(row), style if one.head == "status" else "") for one in differing),
            *(Text(one.text(row)) for one in figures),
        ]
        made.add_row(*cells)
    return made


def _numeric(setting: _Setting, table: Table) -> bool:
    return all(setting.value(row).replace(".", "").isdigit() for row in table.rows if setting.value(row))


def _split(table: Table) -> tuple[list[_Setting], list[str]]:
    """The settings that differ between the rows, and the phrases of those that all rows share."""
    differing, shared = [], []
    for setting in _settings(table):
        values = {setting.value(row) for row in table.rows}
        if len(values) > 1:
            differing.append(setting)
        elif setting.phrase and (value := values.pop()) and value != setting.default:
            phrase = setting.phrase
            shared.append(phrase.format(value) if isinstance(phrase, str) else phrase(value))
    return differing, shared


def _settings(table: Table) -> Iterator[_Setting]:
    """The settings of the rows, in the order of the columns."""
    yield _Setting("workload", _workload)
    yield _of_key("framework")
    if table.mode == CONVERSION:
        yield _of_key("storage", "to {}")
        yield _of_key("images_per_shard", "{} images a shard", "images a shard")
        yield replace(_of_key("encoding", "stored as {}", "stored as"), default="file")
    yield _Setting("phase", _phase)
    yield _of_key("precision")
    yield _of_key("scale", "{} scale")
    yield _of_key("batch_per_device", "batch {}", "batch")
    yield _Setting("devices", _devices, _counted("device"))
    yield _of_key("cache", "{} cache")
    yield _Setting("device", lambda row: _text(row.device))
    yield _of_setting("threads", _counted("thread"))
    if table.mode != CONVERSION:
        yield _of_setting("storage", "from {}", "files")
    yield _of_setting("loader", "loader {}", "native")
    yield _Setting("runtime", lambda row: _text(row.runtime), "runtime {}")
    yield _Setting("image", lambda row: _text(row.image.name), "image {}")
    yield _Setting("limits", lambda row: _text(row.limits_text), "limits: {}")
    yield from (_of_setting(name, "") for name in _further_settings(table))
    yield _Setting("rules", lambda row: _text(row.rules), "rules {}")
    yield _Setting("submitter", lambda row: _text(row.submitter), "submitted by {}")
    yield _Setting("system", lambda row: _text(row.system), "system {}")
    yield _Setting("status", _status)


def _devices(row: ResultRow) -> str:
    return ranks_text(row.key, headed=True) if "devices" in row.key else ""


def _counted(noun: str) -> Callable[[str], str]:
    """The phrase of a value that begins with a number of ``noun``: "1 thread", "2 devices on 2 nodes"."""

    def phrase(value: str) -> str:
        number = "".join(takewhile(str.isdecimal, value))
        return count(int(number), noun) + value[len(number) :] if number else value

    return phrase


def _of_key(name: str, phrase: str = "{}", head: str = "") -> _Setting:
    return _Setting(head or name, lambda row: _text(row.key.get(name)), phrase)


def _of_setting(name: str, phrase: str | Callable[[str], str], default: str = "") -> _Setting:
    return _Setting(_text(name), lambda row: _text(row.settings.get(name)), phrase, default)


def _further_settings(table: Table) -> list[str]:
    """The names of the settings that differ between the rows and have no column of their own kind."""
    names = sorted({name for row in table.rows for name in row.settings} - set(_STATED))
    return [name for name in names if len({_text(row.settings.get(name)) for row in table.rows}) > 1]


def _with_footnotes(
    table: Table, differing: Sequence[_Setting], width: int
) -> tuple[list[_Setting], list[str]]:
    """The settings that have columns, among them ``further`` with the number of a footnote; the footnotes.

    More than three further settings are footnotes, and as many others as it takes to fit into ``width``.
    """
    further = {_text(name) for name in _further_settings(table)}
    noted = further if len(further) > _MOST_COLUMNS else set()
    shown = [one for one in _figures(table.mode) if any(map(one.text, table.rows))][:1]
    room = width - sum(_width_of(one, table) for one in [*shown, _Figure("run", _short)]) + _GAP
    least = {one.head: _least(one, table) + _GAP for one in differing}
    for head in (*_FIRST_NOTED, *sorted(further), *_LAST_NOTED):
        needed = sum(columns for one, columns in least.items() if one not in noted)
        if needed + (len("further") + _GAP if noted else 0) <= room:
            break
        noted.add(head)
    those = [one for one in differing if one.head in noted]

    def text(row: ResultRow) -> str:
        return ", ".join(f"{one.head}={value}" for one in those if (value := one.value(row)))

    notes = [note for note in dict.fromkeys(map(text, table.rows)) if note]
    numbers = {note: f"[{number}]" for number, note in enumerate(notes, 1)}
    columns = [one for one in differing if one.head not in noted]
    if notes:
        before = next((at for at, one in enumerate(columns) if one.head == "status"), len(columns))
        columns.insert(before, _Setting("further", lambda row: numbers.get(text(row), "")))
    return columns, notes


def _widths(
    table: Table, settings: Sequence[_Setting], figures: Sequence[_Figure], width: int
) -> Sequence[int | None]:
    """The widths of the settings' columns beside the figures; None: words have no room, and are cut."""
    room = width - sum(_width_of(one, table) for one in figures)
    least = [_least(one, table) for one in settings]
    found = [_width(one.head, [one.value(row) for row in table.rows]) - _GAP for one in settings]
    return narrowed(found, least, room - _GAP * len(least))


def _least(setting: _Setting, table: Table) -> int:
    """The least width of a column: that of its longest word, and that of its text up to 12 characters."""
    from rich.cells import cell_len

    texts = [setting.head, *map(setting.value, table.rows)]
    return max(max(min(cell_len(text), _LEAST_WIDTH), *map(cell_len, text.split() or [""])) for text in texts)


def _text(value: Any) -> str:
    """A setting as text; empty for null."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else foldable(value, _LONGEST)


def _workload(row: ResultRow) -> str:
    """Workload and variant: the variants of two workloads are never the same model."""
    return " ".join(_text(row.key.get(name)) for name in ("workload", "variant")).strip()


def _phase(row: ResultRow) -> str:
    """The phase, with a scenario other than offline."""
    scenario = row.key.get("scenario")
    other = scenario not in (None, "offline")
    return f"{_text(row.key.get('phase'))}{f', {_text(scenario)}' if other else ''}"


def _status(row: ResultRow) -> str:
    return count(row.flags, "flag") if row.status == "flagged" else row.status


def _fitting(table: Table, differing: Sequence[_Setting], width: int) -> tuple[list[_Figure], list[str]]:
    """The figures that fit beside the settings, and the heads of those that do not.

    The first figure and the run are always shown, and the whole run id before the less important figures.
    Figures that no row has are left out, and those that few rows have come last.
    """
    run, whole = _Figure("run", _short), _Figure("run", lambda row: foldable(row.run_id))
    present = {one: sum(bool(one.text(row)) for row in table.rows) for one in _figures(table.mode)}
    figures = [one for one, rows in present.items() if rows]
    figures[1:] = sorted(figures[1:], key=lambda one: 2 * present[one] < len(table.rows))
    used = sum(_width(one.head, [one.value(row) for row in table.rows]) for one in differing) - _GAP
    used += _width_of(run, table)
    shown: list[_Figure] = []
    for figure in figures:
        more = _width_of(whole, table) - _width_of(run, table)
        if len(shown) >= _BEFORE_RUN_ID and used + more <= width:
            run, used = whole, used + more
        if shown and used + _width_of(figure, table) > width:
            break
        used += _width_of(figure, table)
        shown.append(figure)
    return [*shown, run], [one.head for one in figures[len(shown) :]]


def _width_of(figure: _Figure, table: Table) -> int:
    return _width(figure.head, [figure.text(row) for row in table.rows])


def _width(head: str, cells: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, (head, *cells))) + _GAP


def _figures(mode: str) -> Iterator[_Figure]:
    """The figures of a mode, the most important first."""
    if mode == "quality":
        yield _of_metric("time to quality", "time_to_quality_s")
        yield _of_metric("quality", "quality")
        yield _of_metric("target", "quality_target")
        yield _of_metric("less fp32", "quality_less_fp32")
    else:
        yield _Figure("throughput", lambda row: _shown(row, "throughput_per_s") or row.missing_score)
        yield _Figure("± 95 %", _half_width)
        if mode == CONVERSION:
            yield _of_metric("files read", "files_read_mb_per_s")
            yield _of_metric("shards written", "shards_written_mb_per_s")
        elif mode == LOAD:
            yield _of_metric("files read", "files_read_mb_per_s")
            yield _of_metric("delivered", "batches_delivered_mb_per_s")
        else:
            yield _of_metric("step p50", "step_p50_ms")
            yield _of_metric("step p99", "step_p99_ms")
    names = (
        ("GPU busy", "gpu_utilisation_percent"), ("device memory", "peak_device_memory_bytes"),
        ("host memory", "peak_host_memory_bytes"), ("GPU power", "gpu_power_w"),
        ("drift", "drift_percent"), ("memory growth", "anonymous_growth_bytes"),
        ("CPU", "cpu_worker_cores"), ("input wait", "input_wait_percent"),
        ("JPEG engine", "jpeg_engine_percent"), ("last loss", "loss_last"), ("set-up", "setup_s"),
    )  # fmt: skip
    yield from (_of_metric(*name) for name in names)


def _of_metric(head: str, name: str) -> _Figure:
    return _Figure(head, lambda row: _shown(row, name))


def _shown(row: ResultRow, name: str) -> str:
    metric = row.metrics.get(name)
    return "" if metric is None or metric.value is None else show(metric)


def _half_width(row: ResultRow) -> str:
    """Half of the 95 % interval of the time per unit of work, in percent of it."""
    middle, low = (row.metrics.get(f"throughput_{end}per_s") for end in ("", "low_"))
    if middle is None or low is None or not middle.value or not low.value:
        return ""
    return f"{significant(100 * (middle.value / low.value - 1))} %"


def _short(row: ResultRow) -> str:
    return _text(row.run_id[-_SHORT_ID:])
