"""Execute what was planned, one run after the other, with progress on stderr and a journal.

Matrices, sweeps and scaling sets share :func:`run_in_order`: it shows progress and the time left, keeps the
journal, and ends after an interruption. The cells of matrices and sweeps are processes of their own; the
groups of a scaling set run inside this one, because their runs are interleaved.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean

from suite.compare.result_row import OOM, row_of
from suite.log.units import count, span
from suite.plan.errors import Unsupported
from suite.report.grid import FAILED, NOT_AVAILABLE, NOT_RUN, OUTCOMES, TIMED_OUT, GridEntry, entry_of
from suite.sweep import journal
from suite.sweep.journal import JournalLine
from suite.sweep.order import Step
from suite.sweep.planning import PlannedCell
from suite.sweep.runner import Runner

_WORKER_TIMED_OUT = 23  # exit code of a run whose worker timed out
_STATUS = {"timeout": TIMED_OUT, "error": FAILED, "skipped": NOT_AVAILABLE}  # of a line without a result


def print_progress(line: str) -> None:
    """Print one line on stderr."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work: its title, the seconds that it is expected to take, and what does it.

    ``run`` returns the line for the journal, None after an interruption. ``needed`` is asked before it runs.
    """

    title: str
    seconds: float | None
    run: Callable[[], JournalLine | None]
    needed: Callable[[], bool] = lambda: True


def run_in_order(tasks: Sequence[Task], lock: int, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Run the tasks one after the other and record the end of each; True if an interruption ended it."""
    ratios: list[float] = []  # of the seconds that a task took to those expected
    for number, task in enumerate(tasks):
        if stopped():
            return True
        if not task.needed():
            continue
        expected = [one.seconds for one in tasks[number:] if one.seconds is not None]
        left = f"; about {span(sum(expected) * mean(ratios or [1.0]))} left" if expected else ""
        print_progress(f"[{number + 1}/{len(tasks)}] {task.title}{left}")
        began = time.monotonic()
        line = task.run()
        if line is None:
            return True
        journal.append(lock, line)
        if task.seconds and line.outcome == "ok":
            ratios.append((time.monotonic() - began) / task.seconds)
    return stopped()


def announce(planned: Sequence[PlannedCell], references: int = 0) -> None:
    """Print how many runs are left and an estimate of their time; ``references``: of the reference cell."""
    left = [one for one in planned if one.to_run]
    known = [one.seconds for one in left if one.seconds is not None]
    guessed = [one.guess for one in left if one.seconds is None and one.guess is not None]
    done = sum(one.entry.row is not None for one in planned)
    absent = sum(one.entry.status == NOT_AVAILABLE for one in planned)
    refused = len(planned) - len(left) - done - absent
    line = f"{count(len(planned), 'cell')}: {done} done, {absent} skipped, {len(left)} to run"
    line += f", {refused} refused" if refused else ""
    line += f", and {count(references, 'more run')} of the reference cell" if references else ""
    if known:
        line += f"; about {span(sum(known))} for {len(known)} of them, as in earlier results"
    if guessed:
        line += f"; about {span(sum(guessed))} for {len(guessed)}, a guess: they have no earlier result"
    if rest := len(left) - len(known) - len(guessed):
        line += f"; no estimate for {rest}: they have no earlier result"
    print_progress(line)


def listing(planned: Sequence[PlannedCell]) -> str:
    """One line for each cell: state, time, title, reason. Reasons of several cells follow, by number."""
    counts = Counter(one.entry.why for one in planned if one.entry.why)
    repeated = [why for why, count in counts.items() if count > 1]
    shared = {why: f"[{number}]" for number, why in enumerate(repeated, 1)}
    lines = []
    for one in planned:
        state = "to run" if one.to_run else "done" if one.entry.row is not None else one.entry.outcome
        time = _time(one) if one.to_run else ""
        why = shared.get(one.entry.why, one.entry.why)
        lines.append(f"{state:<7} {time:>7}  {one.cell.title}  {why}".rstrip())
    return "\n".join([*lines, *(f"{number} {why}" for why, number in shared.items())])


def _time(one: PlannedCell) -> str:
    """The time of an earlier run, a guess as ``~2 min``, or unknown."""
    if one.seconds is not None:
        return span(one.seconds)
    return "unknown" if one.guess is None else f"~{span(one.guess)}"


@dataclass
class Ran:
    """What a command has run: the entries of all cells, and those of the reference cell by number."""

    entries: list[GridEntry]
    interrupted: bool = False
    references: dict[int, GridEntry] = field(default_factory=dict)


def run_cells(
    planned: Sequence[PlannedCell],
    results: Path,
    code: str,
    steps: Sequence[Step] | None = None,
    sweep: journal.SweepLine | None = None,
    timeout_s: float | None = None,
) -> Ran:
    """Run the cells of ``planned`` that have no result, in their order or in that of ``steps``."""
    ran = Ran([one.entry for one in planned])
    sweep_id = sweep.sweep if sweep is not None else ""
    with journal.locked(results) as lock:
        before = journal.read(results)
        if sweep is not None:
            journal.append(lock, sweep)
        _record_known(planned, before, code, sweep_id, lock)
        runner = Runner(lock)
        in_order = [Step(index) for index, one in enumerate(planned) if one.to_run]
        tasks = [
            _task(runner, planned, step, code, sweep_id, timeout_s, ran)
            for step in (in_order if steps is None else steps)
        ]
        with runner.handle_signals():
            ran.interrupted = run_in_order(tasks, lock, lambda: runner.interrupted)
    for index, one in enumerate(planned):
        line = journal.latest(before, one.cell.options, code)
        if ran.entries[index].status == NOT_RUN and line is not None and line.outcome in _STATUS:
            ran.entries[index] = replace(one.entry, status=_STATUS[line.outcome], why=line.reason)
    return ran


def _record_known(
    planned: Sequence[PlannedCell], before: Sequence[JournalLine], code: str, sweep: str, lock: int
) -> None:
    """Record the cells that are not run, unless the journal has them already.

    These are the ones that were refused while planning and, in a sweep, those that an earlier result settles:
    with them the journal has every cell of a sweep that ended.
    """
    for one in planned:
        entry = one.entry
        if entry.status == NOT_RUN or (entry.row is not None and not sweep):
            continue
        made = _line(one, entry, code, one.exit_code, sweep=sweep)
        last = journal.latest(before, one.cell.options, code)
        if entry.row is not None:
            last = next(
                (line for line in reversed(before) if (line.options, line.sweep) == (made.options, sweep)),
                None,
            )
        if last is None or (last.outcome, last.reason, last.run_id) != (
            made.outcome,
            made.reason,
            made.run_id,
        ):
            journal.append(lock, made)


def _task(
    runner: Runner,
    planned: Sequence[PlannedCell],
    step: Step,
    code: str,
    sweep: str,
    timeout_s: float | None,
    ran: Ran,
) -> Task:
    one = planned[step.cell]

    def run() -> JournalLine | None:
        ended = runner.run(one.options, timeout_s)
        entry = entry_of(row_of(ended.folder)) if ended.folder is not None else None
        if entry is None or not entry.settled:
            if runner.interrupted and not ended.timed_out:
                return None
            status = NOT_AVAILABLE if ended.exit_code == Unsupported.code else FAILED
            status = TIMED_OUT if ended.timed_out or ended.exit_code == _WORKER_TIMED_OUT else status
            entry = replace(one.entry, status=status, why=ended.reason, row=None)
            for line in ended.last_lines if status == FAILED else ():
                print_progress(f"    | {line}")
            print_progress(f"    {status} (exit code {ended.exit_code}): {ended.reason}")
        else:
            print_progress(f"    {entry.text}, {span(ended.seconds)}")
        if step.reference is not None:
            ran.references[step.reference] = entry
        if step.reference is None or ran.entries[step.cell].row is None:
            ran.entries[step.cell] = entry
        made = _line(one, entry, code, ended.exit_code, sweep=sweep)
        return replace(made, seconds=round(ended.seconds, 3), timeout_s=timeout_s, reference=step.reference)

    if step.reference is None:
        return Task(one.cell.title, one.seconds or one.guess, run)
    title = f"{one.cell.title} (reference cell, measurement {step.reference + 1})"

    def needed() -> bool:  # a cell without a throughput, such as one out of memory, shows no drift
        return all(entry.outcome == OUTCOMES["accepted"] for entry in ran.references.values())

    return Task(title, one.seconds or one.guess, run, needed)


def _line(one: PlannedCell, entry: GridEntry, code: str, exit_code: int | None, sweep: str) -> JournalLine:
    run_id = entry.row.run_id if entry.row is not None else ""
    reason = entry.why if entry.status == OOM or entry.row is None else ""
    return JournalLine(
        one.cell.options, code, entry.outcome, exit_code, reason, entry.group, entry.key, run_id, sweep=sweep
    )


def earlier_references(
    lines: Sequence[JournalLine], results: Path, sweep: str, options: tuple[str, ...]
) -> Mapping[int, GridEntry]:
    """The measurements of the reference cell, which has ``options``, by earlier commands of this sweep."""
    found = {}
    for line in lines:
        measured = (line.sweep, line.options, line.outcome) == (sweep, options, OUTCOMES["accepted"])
        if measured and line.reference is not None and (results / line.run_id).is_dir():
            found[line.reference] = entry_of(row_of(results / line.run_id))
    return found
