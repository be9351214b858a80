"""Runs mutants and counts their outcomes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from suite.checker.verdict import Verdict
from tests.fixtures.forging import Events
from tests.sweep.logs import fix, judge
from tests.sweep.mutants import Mutant
from tests.sweep.stakes import stakes, summary

REJECTED, FLAGGED, SURVIVED = "rejected", "flagged", "survived"
_FILES = re.compile(r"^(data\.rules\.files\.).*")  # one entry for all files


class Outcome(NamedTuple):
    """The outcome of one mutant."""

    log: str
    mutant: Mutant
    stakes: frozenset[str]
    outcome: str  # rejected | flagged | survived
    rules: tuple[str, ...]  # that find something in the mutant and not in the honest log


def attempt(log: str, before: Events, old: dict[str, Any], known: Verdict, mutant: Mutant) -> Outcome | None:
    """Forge, repair as a careful forger does, and judge; None if the mutant equals the honest log."""
    events = list(before)
    mutant.forge(events)
    if not events:
        return Outcome(log, mutant, frozenset({"counts"}), REJECTED, ())
    if all("data" in event and "kind" in event for event in events):
        fix(events, before, mutant.kind, mutant.field)
    if events == before:
        return None
    try:
        verdict = judge(events)
    except Exception as error:  # noqa: BLE001 - the sweep reports faults of the checker
        return Outcome(log, mutant, frozenset({"order"}), SURVIVED, (f"FAULT {error!r}",))
    known_rules = {finding.rule for finding in known.findings}
    new = [finding for finding in verdict.findings if finding.rule not in known_rules]
    rejects = tuple(sorted({finding.rule for finding in new if finding.severity == "reject"}))
    flags = tuple(sorted({finding.rule for finding in new if finding.severity == "flag"}))
    outcome = REJECTED if rejects else FLAGGED if flags else SURVIVED
    return Outcome(log, mutant, frozenset(stakes(old, events)), outcome, rejects or flags)


def attempts(log: str, before: Events, chosen: Iterable[Mutant]) -> Iterator[Outcome]:
    """The outcomes of ``chosen`` mutants of a log; ValueError if the log itself is not accepted."""
    known, old = judge(before), summary(before)
    if not known.accepted:
        raise ValueError(f"log {log}: expected an accepted one, found {known.rejections[0]}")
    for mutant in chosen:
        found = attempt(log, before, old, known, mutant)
        if found is not None:
            yield found


@dataclass
class Tally:
    """Totals by kind of event, survivors with something at stake, and facts that no rule verifies."""

    totals: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    survivors: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    free: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, found: Outcome) -> None:
        """Count one outcome."""
        row = self.totals[found.mutant.kind]
        row["mutants"] += 1
        if found.stakes:
            row["at stake"] += 1
            row[found.outcome] += 1
            if found.outcome == SURVIVED:
                self.survivors[f"{found.mutant.kind} {found.mutant.field}"].append(found)
        elif found.outcome == SURVIVED:
            row["free"] += 1
            self.free[found.mutant.kind].add(_FILES.sub(r"\1*", found.mutant.field))

    @property
    def share(self) -> float:
        """The share of mutants with something at stake that were rejected or flagged; 1 without any."""
        risky = sum(row["at stake"] for row in self.totals.values())
        return 1 - sum(row[SURVIVED] for row in self.totals.values()) / risky if risky else 1.0

    def as_dict(self) -> dict[str, Any]:
        """The tally as JSON values."""
        return {
            "share": f"{self.share:.5f}",
            "totals": {kind: dict(row) for kind, row in sorted(self.totals.items())},
            "survivors": {
                mutant: sorted({_summary(one) for one in found})
                for mutant, found in sorted(self.survivors.items())
            },
            "free": {kind: sorted(fields) for kind, fields in sorted(self.free.items())},
        }


def _summary(one: Outcome) -> str:
    return " | ".join((one.log, one.mutant.id, " ".join(sorted(one.stakes)), *one.rules))
