"""Findings: what the rules report about a log."""

from __future__ import annotations

from dataclasses import dataclass

SEVERITIES = ("reject", "flag", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One departure from one rule.

    ``rule`` is the rule's id, ``severity`` one of reject, flag, info. ``location`` names the position in the
    log ("line 17 (step, repeat 0, rank 0, step 12), data.step_end_ns"). ``expected`` and ``found`` are
    unescaped and may contain characters of the log: print them through :func:`suite.log.safe.safe`. ``fix``
    states how to correct the departure.
    """

    rule: str
    severity: str
    location: str
    expected: str
    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class Defect:
    """A finding of the reader, before the rules add severity and fix."""

    rule: str
    location: str
    expected: str
    found: str


class RecordError(Exception):
    """A result that cannot be read as a log; ``defects`` lists the reasons in the order of the file."""

    def __init__(self, defects: list[Defect]) -> None:
        self.defects = defects
        first = defects[0]
        super().__init__(f"{first.rule} at {first.location}: expected {first.expected}, found {first.found}")
