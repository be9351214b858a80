"""The comparison of a result with its history, as blocks of :mod:`suite.report.compare_text`."""

from __future__ import annotations

from collections.abc import Iterator

from suite.compare.comparable import MEANING
from suite.compare.compare import (
    difference_names,
    difference_text,
    differences,
    percent,
    unlike_sentence,
)
from suite.compare.history import HistoryComparison
from suite.compare.ratio import Ratio
from suite.log.units import count, quantity
from suite.report.compare_text import (
    Block,
    Heading,
    TextLine,
    TextTable,
    difference_blocks,
    gate_blocks,
    identity_blocks,
    unlike_blocks,
)

_MAX_RESULTS = 10  # the latest
_TO_THE_MINUTE = 16  # characters of a time


def blocks(found: HistoryComparison) -> Iterator[Block]:
    """The blocks, in reading order."""
    yield from identity_blocks("result", found.result)
    differing = differences(found.earlier[-1], found.result) if found.earlier else ()
    if found.earlier:
        yield from identity_blocks("before", found.earlier[-1])
        yield from difference_blocks(differing, ("before", "result"))
    yield Heading(f"History: {count(len(found.earlier), 'earlier result')} of this key, settings and machine")
    if found.earlier:
        yield _latest(found)
    if found.others:
        yield TextLine(f"{count(found.others, 'result')} of other keys, settings or machines left out")
    yield from _changes(found)
    yield TextLine(sentence(found))
    yield from gate_blocks(found.gate, ("the result", "the latest level"))
    unlike = [one.name for one in differing if one.group == MEANING]
    yield from unlike_blocks(unlike_sentence("the result and the one before it", unlike))


def _latest(found: HistoryComparison) -> TextTable:
    rows = []
    for result in (*found.earlier[-_MAX_RESULTS:], found.result):
        metric = result["metrics"].get(found.metric, {"value": None, "unit": ""})
        value = "null" if metric["value"] is None else quantity(metric["value"], metric["unit"])
        rows.append((result["when"][:_TO_THE_MINUTE], result["run_id"], value))
    return TextTable(("when", "run", found.metric), tuple(rows))


def _changes(found: HistoryComparison) -> Iterator[Block]:
    for change in found.changes:
        by = percent(abs(change.ratio - 1))
        direction = "up" if change.ratio > 1 else "down"
        also = difference_names(change.differs) or "no fact in the logs"
        when = f"{change.result['when'][:_TO_THE_MINUTE]}, {change.result['run_id']}"
        yield TextLine(f"change: {found.metric} went {direction} by {by} at {when}; also changed: {also}")
    if found.earlier and not found.changes:
        yield TextLine("no change of level in this history")


def sentence(found: HistoryComparison) -> str:
    """The result compared with the earlier results, in one sentence."""
    if found.ratio is None:
        return f"not compared: {found.reason}"
    reference = (
        f"the latest level of {len(found.level)} earlier results, by the spread between them"
        if found.uses_run_spread
        else "the last earlier result, by the repeats of both (the spread between runs is not known yet)"
    )
    return f"{_conclusion(found, found.ratio)} {reference}"


def _conclusion(found: HistoryComparison, ratio: Ratio) -> str:
    if not ratio.different:
        return f"indistinguishable (minimum detectable effect {percent(ratio.detectable)}) from"
    return f"{found.conclusion} by {difference_text(ratio)} than"
