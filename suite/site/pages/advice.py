"""Advice: what ``make advise`` says for each workload, from the results of the site.

A fit takes up to seconds, so a section is kept with its newest result, and made again when one of its results
changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from suite.log.units import count, quantity, significant
from suite.site import parts
from suite.site.collect import Collection, Result
from suite.site.html import Html, Node, join, tag, trusted
from suite.site.shell import page

if TYPE_CHECKING:
    from suite.advice.advise import Advisor
    from suite.advice.cells import Cell, Group
    from suite.report.compare_text import Block

FOOTER = (
    "Measured throughputs follow from logs that the checker accepted. Predictions follow from a model that "
    "is fitted to them (docs/sizing.md)."
)
SHARES = (0.5, 0.8, 0.95)  # of the highest measured throughput: the goals of a page
_LINKS = parts.Links("../")
_KEPT = "advice"  # the name of a section among the parts of a result
_MOST_LINES = 6  # lines of a figure
_STEPS = 60  # points of a predicted line: so many have no markers


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """The list of workloads, and one page for each."""
    usable = [one for one in collection.results if _usable(one)]
    by_workload = {name: some for name, some in parts.grouped(usable, parts.known_workload).items() if name}
    rows, made = [], []
    for name, results in by_workload.items():
        sections = [_section(asked, some) for asked, some in parts.grouped(results, _asked).items()]
        made.append((f"advice/{name}.html", _page(name, results, sections)))
        rows.append(
            tag(
                "tr",
                tag("td", parts.link(parts.Links().to(f"advice/{name}.html"), name)),
                tag("td", sum(int(one["cells"]) for one in sections), class_="n"),
                tag("td", sum(int(one["models"]) for one in sections), class_="n"),
                tag("td", "; ".join(one["title"] for one in sections)),
            )
        )
    about = (
        "Which machine is enough: a model of the step time over processors, batch and devices, fitted to the "
        "results, and the smallest configuration that reaches a goal."
    )
    heads = ["workload", *(parts.head(name, numeric=True) for name in ("configurations", "models"))]
    listed = (
        parts.table([*heads, "measured"], rows, "Workloads with results to advise from")
        if rows
        else tag("p", "There is no accepted result to advise from.")
    )
    body = [tag("h1", "Advice"), tag("p", about, class_="lead"), listed]
    yield "advice.html", page("Advice", body, current="advice.html", footer=FOOTER)
    yield from made


def _usable(result: Result) -> bool:
    return bool(result.facts.get("advice")) and not result.struck and result.row.group[2] == "throughput"


def _asked(result: Result) -> tuple[str, ...]:
    """What results must share to compete for one goal, as :attr:`suite.advice.cells.Group.question`."""
    names = ("phase", "scenario", "variant", "precision", "scale", "nodes")
    return (*(str(parts.key_of(result, name)) for name in names), result.row.group[1])


def _page(name: str, results: Sequence[Result], sections: Sequence[Mapping[str, str]]) -> str:
    command = tag("code", f"make advise WORKLOAD={name} RESULTS_DIR=…")
    body: list[Node] = [
        tag("p", "Advice", class_="kind"),
        tag("h1", name),
        tag("p", "As ", command, " says, for goals at shares of the best result.", class_="lead"),
        *([tag("h2", one["title"]), trusted(one["body"])] for one in sections),
    ]
    practice = all(one.row.group[0] == "practice" for one in results)
    return page(f"Advice: {name}", body, depth=1, watermark=practice, footer=FOOTER)


def _section(asked: tuple[str, ...], results: Sequence[Result]) -> dict[str, str]:
    """Title and body of one section, with its numbers of cells and models.

    It is as it was made before, if no result of the section has changed.
    """
    digest = sha256("\n".join(one.version for one in results).encode()).hexdigest()
    first = results[0]
    known: dict[str, str] = json.loads(first.made.get(_KEPT, "{}"))
    if known.get("of") != digest:
        known = {"of": digest, **_made(f"advice-{sha256(repr(asked).encode()).hexdigest()[:8]}", results)}
        first.made[_KEPT] = json.dumps(known)
    return known


def _made(ids: str, results: Sequence[Result]) -> dict[str, str]:
    from suite.advice.advise import Advisor
    from suite.advice.cells import groups_of

    groups, _ = groups_of((one.row, one.facts["advice"]) for one in results)
    advisors: list[Advisor] = []
    try:
        advisors = [Advisor(group, groups) for group in groups]
        body = join(_advice(advisors, ids))
    except (ValueError, ArithmeticError) as error:  # numbers of a log that no model can be fitted to
        body = tag("p", f"There is no advice: {error}.", class_="note")
    first = results[0]
    named = (parts.phase_of(first), parts.key_of(first, "variant"), parts.key_of(first, "precision"))
    described = (f"{parts.key_of(first, 'scale')} scale", f"{first.row.group[1]} data")
    return {
        "title": ", ".join(str(one) for one in (*named, *described) if one),
        "cells": str(sum(len(one.group.cells) for one in advisors)),
        "models": str(sum(one.model is not None for one in advisors)),
        "body": body,
    }


def _advice(some: Sequence[Advisor], ids: str) -> Iterator[Node]:
    """What competes for one goal: the goals, then each group with its model and grid."""
    from suite.advice.text import blocks

    advised = [(one, one.rows({}, None)) for one in some]
    yield _goals(advised)
    for number, (advisor, rows) in enumerate(advised):
        drawn, *rest = blocks([(advisor, rows)], None, None, None)
        yield _block(drawn)
        yield _figure(advisor, f"{ids}-{number}")
        yield [_block(one) for one in rest]
        yield _parameters(advisor)
        yield _measured(advisor.group)


def _block(block: Block) -> Html:
    from suite.report.compare_text import Heading, TextLine

    if isinstance(block, Heading):
        return tag("h3", block.text)
    if isinstance(block, TextLine):
        return tag("p", block.text)
    rows = [tag("tr", [tag("td", value) for value in row]) for row in block.rows]
    return parts.table(list(block.heads), rows, "Configurations, each at its best batch")


def _goals(advised: Sequence[tuple[Advisor, Sequence[object]]]) -> Node:
    """The smallest configuration for each goal, or the runs that would decide."""
    from suite.advice.goal import THROUGHPUT, Goal
    from suite.advice.report import answer_of

    rates = [rate for one, _ in advised for cell in one.group.cells if (rate := cell.per_second)]
    if not rates:
        return tag("p", "No configuration has a measured throughput.")
    unit = advised[0][0].group.unit
    rows: list[Node] = []
    commands: dict[str, None] = {}
    of_loaders = len({one.group.loader for one, _ in advised}) > 1
    numeric = ("share", "goal", "cpus", "devices", "batch")
    names = [*numeric, "device model", "framework", *(["loader"] if of_loaders else [])]
    names += [f"{unit}/s (interval)", "basis", "limit"]
    for share in SHARES:
        goal = Goal(THROUGHPUT, float(f"{share * max(rates):.3g}"))
        answer = answer_of(advised, goal, None, {}, None)  # type: ignore[arg-type]
        commands |= dict.fromkeys(answer.next_commands)
        cells: list[Node] = [
            tag("td", f"{100 * share:.0f} %", class_="n"),
            tag("td", f"{significant(goal.bound)} {unit}/s", class_="n"),
        ]
        if answer.smallest is None:
            cells += [
                tag(
                    "td",
                    f"not decided: {answer.why_next or 'no configuration reaches it'}",
                    colspan=len(names) - 2,
                )
            ]
        else:
            advisor, row = answer.smallest
            config = row.config
            cells += [
                tag("td", f"{config.cpus:g}", class_="n"),
                tag("td", config.devices, class_="n"),
                tag("td", config.batch, class_="n"),
                tag("td", advisor.group.device),
                tag("td", advisor.group.key["framework"]),
                tag("td", advisor.group.loader) if of_loaders else None,
                tag("td", f"{significant(row.per_second or 0.0)} ({_bounds(row.low, row.high)})"),
                tag("td", row.source),
                tag("td", row.binds or parts.DASH),
            ]
        rows.append(tag("tr", cells))
    heads = [parts.head(one, numeric=one in numeric) for one in names]
    table = parts.table(
        heads, rows, "The smallest configuration that surely reaches a share of the best result"
    )
    if not commands:
        return table
    runs = [tag("pre", command) for command in commands]
    return [table, tag("details", tag("summary", "Runs that would decide more"), runs)]


def _bounds(low: float | None, high: float | None) -> str:
    return parts.DASH if low is None or high is None else f"{significant(low)} – {significant(high)}"


def _parameters(advisor: Advisor) -> Node:
    """The parameters of the model, with their range over the fits that leave cells out."""
    from suite.advice.text import parameter_text

    model = advisor.model
    if model is None:
        return None
    rows = [
        tag(
            "tr",
            tag("td", parameter_text(name, value, model.loaders[0])),
            [tag("td", _parameter(name, end)) for end in ends],
        )
        for (name, value), ends in zip(model.values.items(), model.ranges.values(), strict=True)
    ]
    shown = parts.table(["parameter", "least", "greatest"], rows, "Range over the fits that leave cells out")
    return tag("details", tag("summary", "Parameters of the model"), shown)


def _parameter(name: str, value: float) -> str:
    return f"{value:.3g}" if name[0] in "gu" else quantity(value * 1e3 if value > 1e-12 else 0.0, "ms")


def _measured(group: Group) -> Html:
    """The grid: every configuration that was measured, with its result."""
    numeric = ("cpus", "devices", "memory", "batch", f"{group.unit}/s", "95 % interval", "input wait")
    names = (*numeric, "cache", "results")
    heads = [parts.head(one, numeric=one in numeric) for one in names]
    rows = [_cell(cell) for cell in group.cells]
    shown = parts.table(heads, rows, f"{count(len(rows), 'configuration')} measured", quiet=True)
    return tag("details", tag("summary", f"{count(len(rows), 'measured configuration')}"), shown)


def _cell(cell: Cell) -> Html:
    config, rate, wait = cell.config, cell.per_second, cell.input_wait_percent
    links = [parts.link(_LINKS.result(digest), f"{number} ") for number, digest in enumerate(cell.logs, 1)]
    values = (
        f"{config.cpus:g}",
        str(config.devices),
        quantity(config.memory_bytes, "bytes") if config.memory_bytes else parts.DASH,
        str(config.batch),
        "out of memory" if cell.step_s is None else significant(rate) if rate else parts.DASH,
        _bounds(cell.low_per_s, cell.high_per_s),
        parts.DASH if wait is None else f"{wait:.1f} %",
    )
    return tag(
        "tr", [tag("td", one, class_="n") for one in values], tag("td", config.cache), tag("td", links)
    )


def _figure(advisor: Advisor, ids: str) -> Node:
    """Measured points with their intervals on the lines that the model predicts, over cpus or the batch."""
    from suite.advice.cells import Config
    from suite.figures.axis import Axis
    from suite.figures.frame import STYLES
    from suite.figures.lines import Point, Series, lines
    from suite.figures.results import watermark
    from suite.figures.svg import NARROW, WIDTH

    group = advisor.group
    if advisor.model is None:
        return None
    over = "cpus" if len(advisor.levels("cpus")) > 1 else "batch"
    other = "batch" if over == "cpus" else "cpus"
    first = advisor.timed[0].config  # the lines are of its devices and page cache
    alike = [
        one for one in advisor.timed if (one.config.devices, one.config.cache) == (first.devices, first.cache)
    ]
    measured = sorted({float(getattr(one.config, over)) for one in alike})
    if len(measured) < 2:
        return None
    series = []
    least, most = measured[0], measured[-1]
    at = [least * (most / least) ** (step / (_STEPS - 1)) for step in range(_STEPS)]
    if over == "batch":
        at = sorted({float(round(one)) for one in at})
    levels = sorted({float(getattr(one.config, other)) for one in alike})
    for number, level in enumerate(levels[-_MOST_LINES:]):
        label = f"batch {level:g}" if other == "batch" else count(int(level), "processor")
        style = STYLES[number % len(STYLES)]
        configs = [
            Config(x, int(level), first.devices, None, first.cache)
            if over == "cpus"
            else Config(level, int(x), first.devices, None, first.cache)
            for x in at
        ]
        found = advisor.model.predict([group.point(one) for one in configs])
        units = [advisor.units_per_sample * one.batch * one.devices for one in configs]
        line = tuple(Point(x, u / one.step_s) for x, u, one in zip(at, units, found, strict=True))
        dots = tuple(
            Point(float(getattr(one.config, over)), one.per_second, one.low_per_s, one.high_per_s)
            for one in alike
            if getattr(one.config, other) == level
        )
        series += [
            Series(f"{label}: model", line, style),
            Series(f"{label}: measured", dots, style, line=False),
        ]
    name = "processors" if over == "cpus" else "batch per device"
    horizontal = Axis(name, log=most / least > 8, ticks=tuple(measured))
    wide, narrow = (
        lines(
            f"Throughput over {name}", horizontal, Axis("throughput", f"{group.unit}/s", zero=True), series,
            subtitle=f"{group.key['framework']}, {count(first.devices, 'device')}, {first.cache} page cache",
            notes=["intervals of measured points: 95 %"], width=width,
        )
        for width in (WIDTH, NARROW)
    )  # fmt: skip
    across = watermark("practice" if group.key["scale"] == "mini" else "")
    return parts.plot(wide, ids, across, narrow=narrow)
