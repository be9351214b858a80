"""The report on published logs as text or Markdown; all text from the logs is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from suite.log.safe import safe
from suite.log.units import count
from suite.mllog.outcomes import CHECKS, FAILED, ORDER, PASSED, UNDECIDED
from suite.report.cells import escaped, markdown_table

_MAX_OUTCOMES = 40  # outcomes of a folder that are shown one by one
_MAX_MALFORMED = 5  # malformed lines of a log that are shown one by one
_LONGEST = 240  # characters of a text


def text(value: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a terminal."""
    for folder in value["folders"]:
        yield f"{safe(folder['path'], _LONGEST)}: {_summary(folder)}"
        for outcome in _not_passed(folder)[:_MAX_OUTCOMES]:
            yield f"  {outcome['outcome']}: {outcome['check']}, {safe(outcome['location'], _LONGEST)}"
            if outcome["outcome"] == FAILED:
                yield f"    expected {safe(outcome['expected'], _LONGEST)}"
                yield f"    found    {safe(outcome['found'], _LONGEST)}"
            else:
                yield f"    {safe(outcome['found'], _LONGEST)}"
        yield from (f"  {line}" for line in _malformed(folder))
        yield from (f"  {line}" for line in _rest(folder))
    yield _totals(value)


def markdown(value: Mapping[str, Any]) -> Iterator[str]:
    """One heading and one table per folder."""
    for folder in value["folders"]:
        yield f"## {escaped(folder['path'])}"
        yield ""
        yield escaped(_summary(folder))
        yield ""
        fields = ("check", "outcome", "location", "expected", "found")
        outcomes = _not_passed(folder)[:_MAX_OUTCOMES]
        yield from markdown_table(
            ("check", "outcome", "location", "expected", "found"),
            ([outcome[field] for field in fields] for outcome in outcomes),
        )
        yield ""
        yield from (f"- {escaped(line)}" for line in _malformed(folder))
        yield from (f"- {line}" for line in _rest(folder))
        yield ""
    yield _totals(value)


def _summary(folder: Mapping[str, Any]) -> str:
    mlperf_round = f"round {folder['round']}" if folder["round"] else "round unknown"
    score = folder["score"]
    result = "" if score is None else f", {_minutes(score)}"
    benchmark = safe(folder["benchmark"] or "no single benchmark")
    return f"{benchmark}, {mlperf_round}, {count(len(folder['logs']), 'log')}{result}"


def _minutes(score: Mapping[str, Any]) -> str:
    if score["minutes"] is None:
        return f"no score: {safe(score['reason'])}"
    return f"{score['minutes']:.3f} minutes to train (mean of {score['counted']})"


def _not_passed(folder: Mapping[str, Any]) -> list[dict[str, str]]:
    """The outcomes that did not pass, failures first; equal outcomes of several logs are merged."""
    names = list(CHECKS)
    outcomes = [outcome for outcome in folder["outcomes"] if outcome["outcome"] != PASSED]
    outcomes.sort(key=lambda one: (ORDER.index(one["outcome"]), names.index(one["check"])))
    merged: dict[tuple[str, ...], dict[str, str]] = {}
    locations: dict[tuple[str, ...], int] = Counter()
    for outcome in outcomes:
        same = tuple(outcome[name] for name in ("check", "outcome", "expected", "found"))
        merged.setdefault(same, outcome)
        locations[same] += 1
    for same, outcome in merged.items():
        if more := locations[same] - 1:
            merged[same] = outcome | {"location": f"{outcome['location']} and {more} more"}
    return list(merged.values())


def _malformed(folder: Mapping[str, Any]) -> Iterator[str]:
    for log in folder["logs"]:
        for one in log["malformed_shown"][:_MAX_MALFORMED]:
            yield f"{safe(log['name'])} line {one['line']}, {safe(one['why'])}: {safe(one['text'])}"
        if log["malformed"] > _MAX_MALFORMED:
            yield f"{safe(log['name'])}: {log['malformed']} malformed lines in all"


def _rest(folder: Mapping[str, Any]) -> Iterator[str]:
    hidden = len(_not_passed(folder)) - _MAX_OUTCOMES
    if hidden > 0:
        yield f"{hidden} more outcomes that did not pass (--format json lists all)"
    passed = Counter(outcome["check"] for outcome in folder["outcomes"] if outcome["outcome"] == PASSED)
    if passed:
        yield "passed: " + ", ".join(f"{name} ({passed[name]})" for name in CHECKS if name in passed)


def _totals(value: Mapping[str, Any]) -> str:
    counts = f"{count(value['failed'], 'check')} failed, {value[UNDECIDED]} undecided"
    return f"{count(value['logs'], 'log')} in {count(len(value['folders']), 'folder')}: {counts}"
