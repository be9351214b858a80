"""Three or more results, the fastest first, as blocks of :mod:`suite.report.compare_text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from suite.compare.comparable import FRAMEWORK, MEANING, SETTINGS
from suite.compare.compare import INDISTINGUISHABLE, percent, unlike_sentence
from suite.compare.ranking import FASTEST, RankedResult, Ranking
from suite.log.units import quantity
from suite.report.compare_text import (
    Block,
    Heading,
    TextLine,
    TextTable,
    identity_blocks,
    interval_text,
    unlike_blocks,
    value_text,
)

_COLUMNS_OF = (MEANING, FRAMEWORK, SETTINGS)  # the groups whose differences are columns
_MOST_COLUMNS = 5
_LABELS = {"throughput": "throughput", "time_to_quality_s": "time to quality"}


def blocks(found: Ranking) -> Iterator[Block]:
    """The blocks, in reading order."""
    titles = {row.result["title"] for row in found.rows}
    common = len(titles) == 1
    if common:
        yield TextLine(f"all: {titles.pop()}")
    for row in sorted(found.rows, key=lambda row: row.label):
        title, run = identity_blocks(row.label, row.result)
        if common:
            yield TextLine(f"{row.label}: {run.text.strip()}")
        else:
            yield from (title, run)
    chosen = [fact for fact in found.varying if fact.group in _COLUMNS_OF]
    # hyperparameters and facts of the dataset follow from the settings: columns only where there is room
    chosen = sorted(chosen, key=lambda fact: "." in fact.name)[:_MOST_COLUMNS]
    yield from _rest([fact for fact in found.varying if fact not in chosen])
    metric = _LABELS[found.metric]
    yield Heading("Fastest first")
    heads = ("", *(fact.name for fact in chosen), metric, "speed", "95 % interval", "is")
    rows = []
    for at, row in enumerate(found.rows):
        rows.append((row.label, *(value_text(fact.values[at]) for fact in chosen), *_cells(row)))
    yield TextTable(heads, tuple(rows))
    each = f"{100 * found.confidence:.4g} %"
    yield TextLine(
        f"speed: relative to the fastest, {found.rows[0].label}; "
        f"the intervals hold together at 95 % ({each} each)"
    )
    for row in found.rows[1:]:
        yield TextLine(sentence(row, found.rows[0].label))
    yield from unlike_blocks(unlike_sentence("the results", [fact.name for fact in found.meaning]))


def sentence(row: RankedResult, fastest: str) -> str:
    """One result compared with the fastest, in one sentence."""
    if row.speed is None:
        return f"{row.label}: not compared ({row.reason})"
    smallest = f"minimum detectable effect {percent(row.speed.detectable)}"
    if row.conclusion == INDISTINGUISHABLE:
        return f"{row.label} and {fastest} are indistinguishable; {smallest}"
    return f"{row.label} has {100 * row.speed.value:.4g} % of the speed of {fastest}; {smallest}"


def _cells(row: RankedResult) -> tuple[str, str, str, str]:
    value = "null" if row.value is None else quantity(row.value, row.unit)
    if row.speed is None:
        return (value, "1" if row.conclusion == FASTEST else "null", "", row.conclusion)
    return (value, f"{row.speed.value:.4f}", interval_text(row.speed), row.conclusion)


def _rest(facts: Sequence[Any]) -> Iterator[Block]:
    """The names of the other facts that differ, by group."""
    groups: dict[str, list[str]] = {}
    for fact in facts:
        groups.setdefault(fact.group, []).append(fact.name)
    for group, names in groups.items():
        more = f" and {len(names) - 6} more, listed by --format json" if len(names) > 6 else ""
        yield TextLine(f"also different, {group}: {', '.join(names[:6])}{more}")
