"""Run the checks one after the other, each with a time limit; a hanging or broken check stops no other."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from suite.containers.engines.attestation import EngineProblem
from suite.containers.images.errors import ImageProblem
from suite.containers.images.lock import LockProblem
from suite.doctor.model import FAIL, SKIP, CheckFunction, DoctorCheck, Subject, first_line

TOTAL_S = 120.0
EACH_S = 30.0
UNDO_S = 10.0


@dataclass(frozen=True, slots=True)
class Examination:
    """A check function, the name of its check if it fails to run, and its time limit in seconds."""

    name: str
    function: CheckFunction
    seconds: float = EACH_S


@dataclass(frozen=True, slots=True)
class ExaminationOutcome:
    """A check and the seconds since the one before."""

    check: DoctorCheck
    seconds: float


def examine(
    subject: Subject, examinations: Sequence[Examination], total_s: float = TOTAL_S
) -> Generator[ExaminationOutcome, None, None]:
    """Yield every check when it is done. Clean-up of interrupted checks runs at the end, also on Ctrl-C."""
    until = time.monotonic() + total_s
    try:
        for each in examinations:
            before = time.monotonic()
            left = min(each.seconds, until - before)
            checks = _bounded(subject, each, left) if left > 0 else _too_late(each, total_s)
            for check in checks:
                now = time.monotonic()
                yield ExaminationOutcome(check, now - before)
                before = now
    finally:
        for undo in reversed(subject.undo):
            _within(partial(_silently, undo), UNDO_S)


def _bounded(subject: Subject, each: Examination, seconds: float) -> Iterator[DoctorCheck]:
    """The checks of one examination, run in a thread: a dead file system or engine never answers."""
    made: SimpleQueue[DoctorCheck] = SimpleQueue()

    def run() -> None:
        try:
            for check in each.function(subject):
                made.put(check)
        except Exception as error:  # noqa: BLE001 - the other checks must run
            made.put(_broken(each.name, error))

    ended = _within(run, seconds)
    while not made.empty():
        yield made.get()
    if not ended:
        yield DoctorCheck(
            each.name,
            FAIL,
            f"no answer in {seconds:.0f} s",
            "find the cause (`dmesg | tail`), then run this again",
        )


def _within(work: Callable[[], None], seconds: float) -> bool:
    """Whether ``work`` ended in time; otherwise it continues in the background."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _silently(undo: Callable[[], None]) -> None:
    """Run one clean-up without errors: the check has already reported the problem."""
    with contextlib.suppress(Exception):
        undo()


def _broken(name: str, error: BaseException) -> DoctorCheck:
    if isinstance(error, ImageProblem | LockProblem | EngineProblem):
        return DoctorCheck(name, FAIL, str(error), "apply the fix in the message, then run this again")
    fix = "this check failed unexpectedly: report it with this line"
    return DoctorCheck(name, FAIL, first_line(error), fix)


def _too_late(each: Examination, total_s: float) -> list[DoctorCheck]:
    return [DoctorCheck(each.name, SKIP, f"not reached within {total_s:.0f} s")]
