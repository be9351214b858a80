"""What the judge says about a log: findings."""

from __future__ import annotations

from dataclasses import asdict, dataclass

SEVERITIES = ("reject", "flag", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One departure from one rule.

    ``rule`` is the rule's id, ``severity`` one of reject, flag, info. ``place`` says where in the log
    ("line 17, repeat 0, step 12, data.step_end_ns"). ``expected`` and ``actual`` are unescaped, and may hold
    characters of the log: print them through :func:`suite.log.safe.safe`. ``fix`` says what to do.
    """

    rule: str
    severity: str
    place: str
    expected: str
    actual: str
    fix: str

    def as_dict(self) -> dict[str, str]:
        """The finding as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Defect:
    """A finding without severity and fix: what the reader knows; the rules add the rest."""

    rule: str
    place: str
    expected: str
    actual: str


class RecordError(Exception):
    """A result that cannot be read as a log; ``defects`` says why, in the order of the file."""

    def __init__(self, defects: list[Defect]) -> None:
        self.defects = defects
        first = defects[0]
        super().__init__(f"{first.rule} at {first.place}: expected {first.expected}, found {first.actual}")
