"""The outcome of a check of published logs: what was asked, of what, what was expected and found."""

from __future__ import annotations

from dataclasses import dataclass

PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"
ORDER = (FAILED, UNDECIDED, PASSED)

# Every check, with what it asks. The order is that of the report.
CHECKS = {
    "files": "the folder holds logs that can be read and nothing unknown",
    "lines": "every line with a token is an event",
    "types": "event types are those of the format",
    "submission": "benchmark, organisation, division, status and platform are named, once each",
    "life": "one run starts and stops once",
    "status": "the run ended in success",
    "interval": "the run stops after it starts, and starts after its initialisation",
    "init": "initialisation stays within the round's limit",
    "order": "the times of one process do not go back",
    "history": "evaluations go forward",
    "quality": "the last evaluation meets the target",
    "settings": "sizes are positive whole numbers, the cache was cleared",
    "runs": "there are as many runs as the round asks for",
    "seeds": "every run has a seed of its own",
    "equal settings": "all runs have the same settings",
    "duplicates": "no log is another one again",
    "folder": "log and folders name the same organisation and benchmark",
    "system": "the system description is whole and agrees with the logs",
    "score": "enough runs converged for a score",
}


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One check of one thing. Texts may hold a stranger's words: they are escaped where they are shown."""

    check: str
    outcome: str
    place: str
    expected: str
    found: str


def passed(check: str, place: str, found: str) -> CheckOutcome:
    """A check that holds."""
    return CheckOutcome(check, PASSED, place, CHECKS[check], found)


def failed(check: str, place: str, expected: str, found: str) -> CheckOutcome:
    """A check that does not hold."""
    return CheckOutcome(check, FAILED, place, expected, found)


def undecided(check: str, place: str, why: str) -> CheckOutcome:
    """A check that cannot be made here, and why."""
    return CheckOutcome(check, UNDECIDED, place, CHECKS[check], why)
