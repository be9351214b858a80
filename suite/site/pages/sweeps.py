"""Sweeps and matrices: a list, and a page for each with the outcome of every cell and a figure.

Outcomes and reasons are those of the journal. A throughput is shown only with a checked result that measured
what its cell says; figures of a published study come from the suite's files, in columns of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from suite.compare.journal import values_of
from suite.compare.published import Study, figures_of, study_of
from suite.log.units import count, significant
from suite.report.grid import FAILED, NOT_AVAILABLE, TIMED_OUT, GridEntry, entry_of
from suite.report.sweep_table import PUBLISHED, SweepRow, SweepTable, heading, notes
from suite.site import parts
from suite.site.collect import Collection, Result
from suite.site.html import Html, Node, tag
from suite.site.pages.groups import plots_of
from suite.site.shell import page
from suite.site.sweeps import JournalCell, JournalSweep

FOOTER = (
    "Throughputs follow from logs that the checker accepted. Outcomes and reasons of other cells are those "
    "of the journal. Figures in columns headed “published” are of others, and no results."
)
_LINKS = parts.Links("../")
_STATUS = {"timeout": TIMED_OUT, "error": FAILED, "skipped": NOT_AVAILABLE}
_BADGES = {"ok": "accepted", "error": "rejected", "timeout": "flagged", "oom": "flagged"}
_NAMED = ("workload", "framework", "phase")  # a value says which it is, also in a figure
_MOST_DRAWN = 200  # cells of a figure
# Options of a cell whose value a result states, by the name that its key or its settings have for them.
_STATED = {
    **{name: name for name in ("workload", "variant", "framework", "phase", "scenario", "precision")},
    **{name: name for name in ("devices", "nodes", "scale", "cache", "data", "mode", "loader")},
    "batch": "batch_per_device",
    "framework.threads": "threads",
    "runtime.cpus": "cpus",
}
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """The list, and one page for each sweep, named by its id; the cells of matrices share one page."""
    by_run_id: dict[str, Result] = {}
    for result in collection.results:
        if result.row.run_id not in by_run_id or not result.struck:
            by_run_id[result.row.run_id] = result
    journal = collection.journal
    made = [_Made(sweep, by_run_id) for sweep in journal.sweeps if sweep.ended]
    about = (
        "A sweep measures the cells of a grid in random order; a matrix every workload, framework and phase. "
        "Each cell ends as ok, oom, timeout, error or skipped."
    )
    rows = [
        tag(
            "tr",
            tag("td", parts.link(one.address, one.title)),
            parts.cell(one.sweep.wall[:16].replace("T", " ")),
            tag(
                "td", f"{len(one.table.rows):,} of {max(one.sweep.cells, len(one.table.rows)):,}", class_="n"
            ),
            tag("td", one.table.counts()),
        )
        for one in made
    ]
    heads = ["sweep", "last begun", parts.head("cells ended", numeric=True), "outcomes"]
    body: list[Node] = [tag("h1", "Sweeps"), tag("p", about, class_="lead")]
    body.append(
        parts.table(heads, rows, "Sweeps, the newest first")
        if rows
        else tag("p", "There is no sweep among these results. ", tag("code", "make sweep"), " measures one.")
    )
    if journal.problem:
        body.append(tag("p", f"The journal could not be read: {journal.problem}", class_="callout"))
    if journal.left_out:
        body.append(tag("p", f"{count(journal.left_out, 'older sweep')} not shown.", class_="note"))
    yield "sweeps.html", page("Sweeps", body, current="sweeps.html", footer=FOOTER)
    for one in made:
        yield one.address, one.page()


class _Made:
    """One sweep as a table with its results."""

    def __init__(self, sweep: JournalSweep, by_run_id: Mapping[str, Result]) -> None:
        self.sweep = sweep
        self.study = study_of(sweep.study) if sweep.study else None
        self.results: list[Result | None] = []
        rows = []
        for cell in sorted(sweep.ended, key=_order):
            entry, result = _entry(cell, by_run_id)
            values = values_of(cell.options)
            published = figures_of(self.study.figures, values) if self.study is not None else {}
            rows.append(SweepRow(values, entry, published))
            self.results.append(result)
        self.table = SweepTable(
            tuple(rows),
            tuple(_references(sweep.ended, by_run_id)),
            self.study.findings if self.study is not None else (),
            _sources(self.study),
            planned_axes=sweep.axes,
        )

    @property
    def address(self) -> str:
        return f"sweep/{self.sweep.identity or 'matrix'}.html"

    @property
    def title(self) -> str:
        if not self.sweep.identity:
            return "Matrices"
        if self.study is not None:
            return self.study.title
        common = [
            value if name in _NAMED else f"{name} {value}"
            for name, value in self.table.rows[0].options.items()
            if name not in self.table.axes
        ]
        return f"{' '.join(common)}: {', '.join(self.table.axes)}" if self.table.axes else " ".join(common)

    def page(self) -> str:
        table = self.table
        left = self.sweep.cells - len(table.rows)
        body: list[Node] = [
            tag("p", "Sweep" if self.sweep.identity else "Matrix", class_="kind"),
            tag("h1", self.title),
            tag("p", heading(table), class_="lead"),
            tag("p", f"{count(left, 'cell')} not run yet.", class_="note") if left > 0 else None,
            self._figures(),
            tag("h2", "Cells"),
            self._cells(),
        ]
        if lines := notes(table):
            body += [tag("h2", "Notes"), tag("ul", [tag("li", line) for line in lines])]
        known = [one for one in self.results if one is not None]
        practice = bool(known) and all(one.row.group[0] == "practice" for one in known)
        return page(self.title, body, depth=1, watermark=practice, footer=FOOTER)

    def _figures(self) -> list[Html]:
        """The throughput, where one or two options vary and it is known in two cells."""
        axes = [name for name in self.table.axes if name not in _NAMED]
        known = [
            one
            for row, one in zip(self.table.rows, self.results, strict=True)
            if one is not None and row.entry.outcome in ("ok", "oom")
        ][:_MOST_DRAWN]
        scored = [one for one in known if parts.value_of(parts.score(one)[0]) is not None]
        if not 1 <= len(axes) <= 2 or len(scored) < 2:
            return []
        return plots_of(known, "throughput", "sweep", parts.watermark_of(known[0]))

    def _cells(self) -> Html:
        """One row for each cell: its options that vary, its outcome, its throughput, published figures."""
        table = self.table
        heads = [
            *(parts.head(name, numeric=_numeric(table, name)) for name in table.axes),
            *("outcome", parts.head("throughput", numeric=True), parts.head("95 % interval", numeric=True)),
            *("unit", *(parts.head(f"{PUBLISHED}: {one}", numeric=True) for one in table.platforms)),
            *(["reason"] if any(row.entry.why for row in table.rows) else []),
        ]
        rows = []
        for row, result in zip(table.rows, self.results, strict=True):
            cells: list[Node] = [
                parts.cell(row.options.get(name), numeric=_numeric(table, name)) for name in table.axes
            ]
            cells.append(tag("td", parts.badge(row.entry.outcome, _BADGES.get(row.entry.outcome, "unknown"))))
            cells += _throughput(row.entry, result)
            cells += [parts.cell(row.published.get(name), numeric=True) for name in table.platforms]
            if len(heads) > len(cells):
                cells.append(tag("td", row.entry.why, class_="note"))
            rows.append(tag("tr", cells))
        return parts.table(heads, rows, heading(table), quiet=True, class_="cells")


def _throughput(entry: GridEntry, result: Result | None) -> list[Node]:
    """Throughput, interval and unit of a cell; the number, or the outcome of a result, is a link to it."""
    link = _LINKS.result(result.digest) if result is not None else None
    if entry.row is None or result is None or entry.outcome != "ok":
        shown = parts.link(link, "result") if link else parts.DASH
        return [tag("td", shown, class_="n"), tag("td", parts.DASH, class_="n"), tag("td", parts.DASH)]
    value, low, high = parts.score(result)
    known = parts.value_of(value)
    text = parts.link(link, significant(known)) if known is not None else parts.link(link, "result")
    unit = value.unit if value is not None and known is not None else parts.DASH
    return [tag("td", text, class_="n", data_metric="score"), parts.interval(low, high), tag("td", unit)]


def _entry(cell: JournalCell, by_run_id: Mapping[str, Result]) -> tuple[GridEntry, Result | None]:
    """A cell for the table, and its checked result."""
    if cell.outcome in _STATUS:
        return GridEntry(("", "", "", ""), {}, _STATUS[cell.outcome], cell.reason), None
    run_id = cell.references[0] if cell.references else cell.run_id  # the first measurement is the result
    result = by_run_id.get(run_id)
    nothing = GridEntry(("", "", "", ""), {}, FAILED)
    if result is None:
        return replace(
            nothing, why=f"the journal says {cell.outcome}, but its result is not here: {run_id}"
        ), None
    if found := _contradiction(cell, result):
        why = f"the journal names a result that measured something else: {found}"
        return replace(nothing, why=why), result
    entry = entry_of(result.row)
    if result.struck and entry.outcome != "error":  # by a comparison with other submissions
        rules = [one.rule for one in result.findings if one.severity == "reject"]
        entry = replace(entry, status=FAILED, why=f"rejected: {', '.join(rules[:3])}")
    return entry, result


def _contradiction(cell: JournalCell, result: Result) -> str:
    """An option of the cell with another value in the result; empty if none has one."""
    row = result.row
    stated = {**row.settings, **row.limits, **row.key, "data": row.group[1], "mode": row.group[2]}
    for name, wanted in values_of(cell.options).items():
        found = stated.get(_STATED.get(name, ""))
        if found is None or (name in ("batch", "devices") and not wanted.isdecimal()):
            continue
        same = str(found) == wanted
        with suppress(ValueError):
            same = same or float(str(found)) == float(wanted)
        if not same:
            return f"{name}={wanted} in the journal, {found} in the log"
    return ""


def _references(cells: Sequence[JournalCell], by_run_id: Mapping[str, Result]) -> Iterator[GridEntry]:
    """The measurements of the reference cell, in their order."""
    for cell in cells:
        for run_id in cell.references:
            result = by_run_id.get(run_id)
            if result is not None and not result.struck and not _contradiction(cell, result):
                yield entry_of(result.row)


def _sources(study: Study | None) -> tuple[str, ...]:
    return () if study is None else study.sources or (study.title,)


def _order(cell: JournalCell) -> tuple[tuple[str, bool, float, str], ...]:
    """By the options in their order, numbers as numbers."""
    found = []
    for name, value in values_of(cell.options).items():
        number = float(value) if _NUMBER.fullmatch(value) else None
        found.append((name, number is None, number or 0.0, value))
    return tuple(found)


def _numeric(table: SweepTable, name: str) -> bool:
    return all(_NUMBER.fullmatch(row.options.get(name, "0")) for row in table.rows)
