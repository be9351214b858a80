"""The outcome of a check of published logs: check, severity, subject, what was expected and found.

An error is a breach of the round's rules for which MLCommons rejects a result, or evidence of an edit. A
warning is for an auditor to look at. Information states what cannot be decided, and why.
"""

from __future__ import annotations

from dataclasses import dataclass

PASSED, INFORMATION, WARNING, ERROR = "passed", "information", "warning", "error"
SEVERITIES = (ERROR, WARNING, INFORMATION)  # in the order of the report

# Every check with its requirement, in the order of the report.
CHECKS = {
    "files": "the folder holds logs that can be read and nothing unknown",
    "duplicates": "no log is a copy of another",
    "lines": "every line with a token is an event",
    "types": "every event type is one of the format",
    "submission": "benchmark, organisation, division, status and platform are named, once each",
    "life": "one run starts and stops once",
    "status": "the run ended in success",
    "interval": "the run stops after it starts, and starts after its initialisation",
    "init": "initialisation stays within the round's limit",
    "quality": "an evaluation meets the target",
    "within run": "training and the evaluation that meets the target lie between run_start and run_stop",
    "order": "the times of one process do not decrease",
    "history": "training progress increases from one evaluation to the next",
    "settings": "sizes are positive whole numbers and the cache was cleared",
    "runs": "the number of runs is the one that the round requires",
    "seeds": "no two runs share a seed",
    "equal settings": "all runs have the same settings",
    "folder": "log and folders name the same organisation and benchmark",
    "system": "the system description is complete and agrees with the logs",
    "score": "enough runs converged for a score",
}
# A log with an error in one of these does not count as a run that converged.
COMPLIANCE = ("lines", "submission", "life", "status", "interval", "init", "quality")


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One check of one log or folder. Texts may quote untrusted input: escape them before printing."""

    check: str
    outcome: str
    location: str
    expected: str
    found: str


def passed(check: str, location: str, found: str) -> CheckOutcome:
    """The outcome of a check that holds."""
    return CheckOutcome(check, PASSED, location, CHECKS[check], found)


def error(check: str, location: str, expected: str, found: str) -> CheckOutcome:
    """The outcome of a check that does not hold, where a rule of the round is broken or a log was edited."""
    return CheckOutcome(check, ERROR, location, expected, found)


def warning(check: str, location: str, expected: str, found: str) -> CheckOutcome:
    """The outcome of a check that does not hold, where no rule of the round is broken."""
    return CheckOutcome(check, WARNING, location, expected, found)


def information(check: str, location: str, why: str) -> CheckOutcome:
    """The outcome of a check that cannot be decided, and why."""
    return CheckOutcome(check, INFORMATION, location, CHECKS[check], why)
