"""Where a result stands in its history, for people: parts that :mod:`suite.report.compare_text` writes."""

from __future__ import annotations

from collections.abc import Iterator

from suite.compare.compare import differences, names_of, percent
from suite.compare.history import Standing
from suite.compare.ratio import Ratio
from suite.log.units import count, quantity
from suite.report.compare_text import (
    Block,
    Heading,
    TextLine,
    TextTable,
    change,
    difference_blocks,
    gate_blocks,
    whose,
)

_SHOWN = 10  # of the latest results
_DAY = 16  # characters of a time: to the minute


def blocks(found: Standing) -> Iterator[Block]:
    """The parts, in the order in which they are to be read."""
    yield from whose("result", found.result)
    if found.earlier:
        last = found.earlier[-1]
        yield from whose("before", last)
        yield from difference_blocks(differences(last, found.result), ("before", "result"))
    yield Heading(f"History: {count(len(found.earlier), 'earlier result')} of this key, settings and machine")
    if found.earlier:
        yield _latest(found)
    if found.others:
        yield TextLine(f"{count(found.others, 'result')} of other keys, settings or machines left out")
    yield from _changes(found)
    yield TextLine(sentence(found))
    yield from gate_blocks(found.gate, ("the result", "the level before it"))


def _latest(found: Standing) -> TextTable:
    rows = []
    for result in (*found.earlier[-_SHOWN:], found.result):
        metric = result["metrics"].get(found.metric, {"value": None, "unit": ""})
        value = "null" if metric["value"] is None else quantity(metric["value"], metric["unit"])
        rows.append((result["when"][:_DAY], result["run_id"], value))
    return TextTable(("when", "run", found.metric), tuple(rows))


def _changes(found: Standing) -> Iterator[Block]:
    for one in found.changes:
        by = percent(abs(one.ratio - 1))
        direction = "up" if one.ratio > 1 else "down"
        with_it = names_of(one.differs) or "nothing that the logs tell"
        when = f"{one.result['when'][:_DAY]}, {one.result['run_id']}"
        yield TextLine(
            f"change: {found.metric} went {direction} by {by} at {when}; with it changed: {with_it}"
        )
    if found.earlier and not found.changes:
        yield TextLine("no change of level in this history")


def sentence(found: Standing) -> str:
    """How the result compares with what came before it, in one sentence."""
    if found.ratio is None:
        return f"not compared: {found.reason}"
    before = (
        f"the level of {len(found.level)} results before it, by how far those lie apart"
        if found.predicted
        else "the last result before it, by the repeats of both (how far runs lie apart is not known yet)"
    )
    return f"{_word(found, found.ratio)} {before}"


def _word(found: Standing, ratio: Ratio) -> str:
    if not ratio.different:
        return f"indistinguishable (detectable from {percent(ratio.detectable)}) from"
    return f"{found.word} by {change(ratio)} than"
