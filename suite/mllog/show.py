"""What was verified of published logs, for people: text or Markdown, with every stranger's word escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.log.safe import safe
from suite.log.units import count
from suite.mllog.outcomes import CHECKS, FAILED, ORDER, PASSED, UNDECIDED
from suite.report.markdown import escaped

_SHOWN = 40  # outcomes of a folder that are told one by one
_MALFORMED = 5  # malformed lines of a log that are told one by one
_LONG = 240


def text(value: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a terminal."""
    for folder in value["folders"]:
        yield f"{safe(folder['path'], _LONG)}: {_what(folder)}"
        for outcome in _told(folder)[:_SHOWN]:
            yield f"  {outcome['outcome']}: {outcome['check']}, {safe(outcome['place'], _LONG)}"
            if outcome["outcome"] == FAILED:
                yield f"    expected {safe(outcome['expected'], _LONG)}"
                yield f"    found    {safe(outcome['found'], _LONG)}"
            else:
                yield f"    {safe(outcome['found'], _LONG)}"
        yield from (f"  {line}" for line in _malformed(folder))
        yield from (f"  {line}" for line in _rest(folder))
    yield _sum(value)


def markdown(value: Mapping[str, Any]) -> Iterator[str]:
    """One heading and one table a folder."""
    for folder in value["folders"]:
        yield f"## {escaped(folder['path'])}"
        yield ""
        yield escaped(_what(folder))
        yield ""
        yield "| check | outcome | place | expected | found |"
        yield "| --- | --- | --- | --- | --- |"
        for outcome in _told(folder)[:_SHOWN]:
            cells = (outcome[name] for name in ("check", "outcome", "place", "expected", "found"))
            yield "| " + " | ".join(escaped(cell) for cell in cells) + " |"
        yield ""
        yield from (f"- {escaped(line)}" for line in _malformed(folder))
        yield from (f"- {line}" for line in _rest(folder))
        yield ""
    yield _sum(value)


def _what(folder: Mapping[str, Any]) -> str:
    known = f"round {folder['round']}" if folder["round"] else "round not known"
    score = folder["score"]
    told = "" if score is None else f", {_minutes(score)}"
    logs = len(folder["logs"])
    return f"{safe(folder['benchmark'] or 'no one benchmark')}, {known}, {logs} log{'s' * (logs != 1)}{told}"


def _minutes(score: Mapping[str, Any]) -> str:
    if score["minutes"] is None:
        return f"no score: {safe(score['reason'])}"
    return f"{score['minutes']:.3f} minutes to train (mean of {score['counted']})"


def _told(folder: Mapping[str, Any]) -> list[dict[str, str]]:
    """What did not pass, the worst first, what is alike of several logs once."""
    names = list(CHECKS)
    odd = [outcome for outcome in folder["outcomes"] if outcome["outcome"] != PASSED]
    odd.sort(key=lambda found: (ORDER.index(found["outcome"]), names.index(found["check"])))
    alike: dict[tuple[str, ...], list[str]] = {}
    for found in odd:
        said = tuple(found[name] for name in ("check", "outcome", "expected", "found"))
        alike.setdefault(said, []).append(found["place"])
    return [
        {
            "check": said[0],
            "outcome": said[1],
            "place": _places(places),
            "expected": said[2],
            "found": said[3],
        }
        for said, places in alike.items()
    ]


def _places(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


def _malformed(folder: Mapping[str, Any]) -> Iterator[str]:
    for log in folder["logs"]:
        for one in log["malformed_shown"][:_MALFORMED]:
            yield f"{safe(log['name'])} line {one['line']}, {safe(one['why'])}: {safe(one['text'])}"
        if log["malformed"] > _MALFORMED:
            yield f"{safe(log['name'])}: {log['malformed']} malformed lines in all"


def _rest(folder: Mapping[str, Any]) -> Iterator[str]:
    odd = len(_told(folder))
    if odd > _SHOWN:
        yield f"{odd - _SHOWN} more that did not pass (--format json has all)"
    good = Counter(outcome["check"] for outcome in folder["outcomes"] if outcome["outcome"] == PASSED)
    if good:
        yield "passed: " + ", ".join(f"{name} ({good[name]})" for name in CHECKS if name in good)


def _sum(value: Mapping[str, Any]) -> str:
    counts = f"{count(value['failed'], 'check')} failed, {value[UNDECIDED]} undecided"
    return f"{count(value['logs'], 'log')} in {count(len(value['folders']), 'place')}: {counts}"
