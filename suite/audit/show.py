"""Prints a verdict: findings, every rule with its outcome, the level, and what the next level needs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from suite.audit.outcomes import ORDER, RuleOutcome, counted
from suite.log.finding import Finding
from suite.log.safe import safe
from suite.log.units import count
from suite.submissions.registry.model import Withdrawal

_WIDTH = 100
_LONGEST = 1000  # characters of a withdrawal


def lines(value: Mapping[str, Any]) -> Iterator[str]:
    """The verdict (:func:`suite.audit.judgement.judged`) as lines, all safe to print."""
    yield f"result: {safe(value['result'])}"
    yield f"log:    SHA-256 {value['sha256'] or 'not read'}"
    policy = value["policy"]
    yield f"rules:  {policy['version']}, digest {policy['digest']}"
    yield ""
    for found in (Finding(**one) for one in value["findings"]):
        yield f"{found.severity}: {found.rule} at {safe(found.location)}"
        yield f"  expected {safe(found.expected, 240)}"
        yield f"  found    {safe(found.found)}"
        yield f"  fix     {found.fix}"
    for title, name in (
        ("rules of the log", "outcomes"),
        ("description, signature, registry", "outcomes_of_submission"),
    ):
        rows = [RuleOutcome(**row) for row in value[name]]
        yield f"{title}: {counted(rows)}"
        yield from _rules(rows)
    yield ""
    yield verdict(value)
    if value["withdrawal"] is not None:
        yield safe(Withdrawal(**value["withdrawal"]), _LONGEST)
    if value["level"] is not None:
        yield f"assurance level: {value['level']}; for the next: {safe(value['missing'], 240)}"


def verdict(value: Mapping[str, Any]) -> str:
    """The verdict in one line."""
    scored = value["scored"] or value["withdrawal"] is not None
    outcome = "accepted" if scored else "accepted, without a score"
    if not value["accepted"]:
        outcome = "rejected"
    if value["withdrawal"] is not None:
        outcome += ", withdrawn by its submitter"
    counts = f"{count(value['rejections'], 'rejection')}, {count(value['flags'], 'flag')}"
    return f"{outcome}: {safe(value['result'])} ({counts}; {safe(value['reached'])})"


def _rules(rows: Sequence[RuleOutcome]) -> Iterator[str]:
    """The rules, grouped by outcome and reason."""

    def rank(row: RuleOutcome) -> tuple[int, str]:
        return ORDER.index(row.outcome), row.because

    for (_, because), group in groupby(sorted(rows, key=rank), key=rank):
        members = list(group)
        head = f"  {members[0].outcome}" + (f" ({safe(because)})" if because else "") + ": "
        names = ", ".join(row.rule for row in members)
        # Ids contain hyphens, at which lines must not break.
        yield from textwrap.wrap(
            head + names, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
        )
