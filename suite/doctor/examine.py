"""One check after the other, each bounded in time: one that hangs or breaks keeps no other from its turn."""

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
from suite.doctor.model import FAIL, SKIP, Check, Look, Subject, first_line

TOTAL_S = 120.0
EACH_S = 30.0
UNDO_S = 10.0


@dataclass(frozen=True, slots=True)
class Examination:
    """A look, the name that stands for it where it breaks, and how many seconds it may take."""

    name: str
    look: Look
    seconds: float = EACH_S


@dataclass(frozen=True, slots=True)
class ExaminationOutcome:
    """A check and how many seconds passed until it was made, since the one before."""

    check: Check
    seconds: float


def examine(
    subject: Subject, examinations: Sequence[Examination], total_s: float = TOTAL_S
) -> Generator[ExaminationOutcome, None, None]:
    """Every check as it is made. What a cut-off check left is undone at the end, also on Ctrl-C."""
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


def _bounded(subject: Subject, each: Examination, seconds: float) -> Iterator[Check]:
    """The checks of one examination, which runs in a thread: a dead file system or engine answers never."""
    made: SimpleQueue[Check] = SimpleQueue()

    def run() -> None:
        try:
            for check in each.look(subject):
                made.put(check)
        except Exception as error:  # noqa: BLE001 - the others are to be made all the same
            made.put(_broken(each.name, error))

    ended = _within(run, seconds)
    while not made.empty():
        yield made.get()
    if not ended:
        yield Check(
            each.name,
            FAIL,
            f"no answer in {seconds:.0f} s",
            "see what hangs (`dmesg | tail`), then run this again",
        )


def _within(work: Callable[[], None], seconds: float) -> bool:
    """Whether ``work`` ended in time; where it did not, it goes on without anybody waiting."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _silently(undo: Callable[[], None]) -> None:
    """Undo what can be undone: the check itself has said what is wrong."""
    with contextlib.suppress(Exception):
        undo()


def _broken(name: str, error: BaseException) -> Check:
    if isinstance(error, ImageProblem | LockProblem | EngineProblem):
        return Check(name, FAIL, str(error), "do what it says, then run this again")
    remedy = "a fault of this check or something it did not expect: report it with this line"
    return Check(name, FAIL, first_line(error), remedy)


def _too_late(each: Examination, total_s: float) -> list[Check]:
    return [Check(each.name, SKIP, f"not reached within {total_s:.0f} s")]
