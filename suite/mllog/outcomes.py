"""The outcome of a check of published logs: the check, its subject, what was expected and found."""

from __future__ import annotations

from dataclasses import dataclass

PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"
ORDER = (FAILED, UNDECIDED, PASSED)

# Every check with its requirement, in the order of the report.
CHECKS = {
    "files": "the folder holds logs that can be read and nothing unknown",
    "lines": "every line with a token is an event",
    "types": "every event type is one of the format",
    "submission": "benchmark, organisation, division, status and platform are named, once each",
    "life": "one run starts and stops once",
    "status": "the run ended in success",
    "interval": "the run stops after it starts, and starts after its initialisation",
    "init": "initialisation stays within the round's limit",
    "order": "the times of one process do not decrease",
    "history": "training progress increases from one evaluation to the next",
    "quality": "the last evaluation meets the target",
    "settings": "sizes are positive whole numbers and the cache was cleared",
    "runs": "the number of runs is the one that the round requires",
    "seeds": "no two runs share a seed",
    "equal settings": "all runs have the same settings",
    "duplicates": "no log is a copy of another",
    "folder": "log and folders name the same organisation and benchmark",
    "system": "the system description is complete and agrees with the logs",
    "score": "enough runs converged for a score",
}


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


def failed(check: str, location: str, expected: str, found: str) -> CheckOutcome:
    """The outcome of a check that does not hold."""
    return CheckOutcome(check, FAILED, location, expected, found)


def undecided(check: str, location: str, why: str) -> CheckOutcome:
    """The outcome of a check that cannot be made, and why."""
    return CheckOutcome(check, UNDECIDED, location, CHECKS[check], why)
