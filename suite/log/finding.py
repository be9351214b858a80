"""Findings: what the rules report about a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEVERITIES = ("reject", "flag", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One departure from one rule.

    ``rule`` is the rule's id, ``severity`` one of reject, flag, info. ``location`` names the position in the
    log ("line 17 (step, repeat 0, rank 0, step 12), data.step_end_ns"). ``expected`` and ``actual`` are
    unescaped and may contain characters of the log: print them through :func:`suite.log.safe.safe`. ``fix``
    states how to correct the departure.
    """

    rule: str
    severity: str
    location: str
    expected: str
    actual: str
    fix: str

    def as_dict(self) -> dict[str, str]:
        """The finding as JSON values."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "place": self.location,
            "expected": self.expected,
            "actual": self.actual,
            "fix": self.fix,
        }

    @classmethod
    def of_dict(cls, value: Mapping[str, str]) -> Finding:
        """The finding whose :meth:`as_dict` is ``value``."""
        return cls(**{"location" if name == "place" else name: text for name, text in value.items()})


@dataclass(frozen=True, slots=True)
class Defect:
    """A finding of the reader, before the rules add severity and fix."""

    rule: str
    location: str
    expected: str
    actual: str


class RecordError(Exception):
    """A result that cannot be read as a log; ``defects`` lists the reasons in the order of the file."""

    def __init__(self, defects: list[Defect]) -> None:
        self.defects = defects
        first = defects[0]
        super().__init__(f"{first.rule} at {first.location}: expected {first.expected}, found {first.actual}")
