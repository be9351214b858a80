"""The checks as JUnit XML, one test case per check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suite.doctor.examine import ExaminationOutcome
from suite.doctor.model import FAIL, SKIP, WARN
from suite.report import junit

_OUTCOMES = {FAIL: junit.FAILED, SKIP: junit.SKIPPED}


def write(path: Path, outcomes: Sequence[ExaminationOutcome]) -> None:
    """Write ``outcomes`` to ``path``, one test case per check. Raises OSError."""
    junit.write(path, "doctor", [_case(outcome) for outcome in outcomes])


def _case(outcome: ExaminationOutcome) -> junit.JunitCase:
    check = outcome.check
    message = ("warning: " if check.state == WARN else "") + check.found
    return junit.JunitCase(
        check.name,
        _OUTCOMES.get(check.state, junit.PASSED),
        message,
        details=f"→ {check.fix}" if check.fix else "",
        seconds=outcome.seconds,
    )
