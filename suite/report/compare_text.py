"""A comparison as plain text or Markdown. Text from logs is escaped here, once, in every cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from suite.compare.comparable import GROUPS
from suite.compare.compare import (
    ComparableResult,
    Comparison,
    Difference,
    Gate,
    MetricComparison,
)
from suite.compare.ratio import FAILS, HOLDS, Ratio
from suite.log.safe import folded
from suite.log.units import quantity
from suite.report.cells import aligned, escaped, markdown_table

_SHORT_CELL, _LONG_CELL = 44, 300  # characters
_TITLE = 400
_PAIRED = "paired: repeat r of A and repeat r of B ran one after the other on one machine (interleaved)"
_UNPAIRED = "not paired: the repeats of A and B did not run interleaved on one machine"
_MAX_DIFFERENCES = 100  # per group: a forged log may have thousands
_HEADS = ("", "A", "B", "B / A", "95 % interval")


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of text."""

    text: str


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with left-aligned columns."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | TextLine | TextTable


def blocks(found: Comparison) -> Iterator[Block]:
    """The blocks of a comparison, in reading order."""
    for side, result in (("A", found.a), ("B", found.b)):
        yield from identity_blocks(side, result)
    yield from difference_blocks(found.differences)
    yield Heading("How far apart they are")
    yield TextTable(_HEADS, tuple(_metric_cells(row) for row in found.rows))
    if any(row.ratio is not None for row in found.rows):
        yield TextLine(_PAIRED if found.paired else _UNPAIRED)
    if any(row.name.startswith("latency") for row in found.rows):
        yield TextLine("latency: the mean of the repeats' percentiles; `summary` has those over all steps")
    for row in found.rows:
        yield TextLine(row.sentence)
    if found.baselines:
        listed = ", ".join(f"{name} {ratio:.4f}" for name, ratio in found.baselines.items())
        yield TextLine(f"baselines that A and B cite, B / A: {listed}")
    yield from gate_blocks(found.gate)
    yield from unlike_blocks(found.different_settings)


def unlike_blocks(sentence: str) -> Iterator[Block]:
    """The last line of a comparison of results that measure different work; nothing for equal work."""
    if sentence:
        yield TextLine(sentence)


def identity_blocks(side: str, result: ComparableResult) -> tuple[TextLine, TextLine]:
    """The title, run id, digest and flags of one side."""
    flags = f"; flagged: {', '.join(result['flags'])}" if result["flags"] else ""
    return (
        TextLine(f"{side}: {result['title']}"),
        TextLine(f"   {result['run_id']}, SHA-256 of the log {result['sha256'][:16]}{flags}"),
    )


def difference_blocks(found: Sequence[Difference], sides: tuple[str, str] = ("A", "B")) -> Iterator[Block]:
    """Every difference by group; first those that change what is measured."""
    for group in GROUPS:
        rows = [one for one in found if one.group == group]
        if not rows:
            continue
        yield Heading(f"Differences: {group}")
        yield TextTable(
            ("", *sides), tuple((one.name, *_cells(one.a, one.b)) for one in rows[:_MAX_DIFFERENCES])
        )
        if len(rows) > _MAX_DIFFERENCES:
            yield TextLine(f"and {len(rows) - _MAX_DIFFERENCES} more, listed by --format json")
    same = [group for group in GROUPS if all(one.group != group for one in found)]
    if same:
        yield TextLine(f"the same in both: {', '.join(same)}")


def _cells(a: Any, b: Any) -> tuple[str, str]:
    """Two values, truncated unless that hides their difference."""
    texts = [value_text(value) for value in (a, b)]
    short = [text if len(text) <= _SHORT_CELL else text[: _SHORT_CELL - 1] + "…" for text in texts]
    return (short[0], short[1]) if short[0] != short[1] else (texts[0], texts[1])


def value_text(value: Any) -> str:
    """``value`` as JSON writes it; a text as it is."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metric_cells(row: MetricComparison) -> tuple[str, ...]:
    values = tuple("null" if value is None else quantity(value, row.unit) for value in (row.a, row.b))
    if row.ratio is None:
        return (row.label, *values, "null", "null")
    return (row.label, *values, f"{row.ratio.value:.4f}", interval_text(row.ratio))


def interval_text(ratio: Ratio) -> str:
    """The ends of a ratio's interval."""
    return f"{ratio.low:.4f} to {ratio.high:.4f}"


def gate_blocks(found: Gate | None, sides: tuple[str, str] = ("B", "A")) -> Iterator[Block]:
    """The gate's outcome for the first side, in one line; nothing without a gate."""
    if found is None:
        return
    limit = f"{100 * found.loss:.4g} %"
    outcome = {
        HOLDS: f"gate holds: a loss of more than {limit} is excluded",
        FAILS: f"GATE FAILS: {sides[0]} is slower than {sides[1]} by more than {limit}",
    }.get(found.outcome, f"gate undecidable: {sides[0]} may or may not be slower by more than {limit}")
    yield TextLine(f"{outcome} ({found.why})")


def to_text(parts: Sequence[Block], width: int | None = None) -> str:
    """Plain text, columns aligned; folded to ``width`` columns if given."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Heading):
            lines += ["", *folded(part.text, width, _TITLE)]
        elif isinstance(part, TextLine):
            lines += folded(part.text, width, _TITLE)
        else:
            inner = None if width is None else width - 2
            lines += [f"  {line}".rstrip() for line in aligned((part.heads, *part.rows), _LONG_CELL, inner)]
    return "\n".join(lines).lstrip("\n") + "\n"


def to_markdown(parts: Sequence[Block]) -> str:
    """Markdown; every cell is escaped so that it cannot become markup."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Heading):
            lines += [f"### {escaped(part.text, _TITLE)}", ""]
        elif isinstance(part, TextLine):
            lines += [escaped(part.text.strip(), _TITLE), ""]
        else:
            lines += [*markdown_table(part.heads, part.rows, _LONG_CELL), ""]
    return "\n".join(lines)
