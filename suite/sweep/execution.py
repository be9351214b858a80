"""Carrying a planned matrix out: one run after the other, told on stderr, with what came of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from suite.compare.result_row import row_of
from suite.plan.errors import Unsupported
from suite.report.grid import FAILED, NOT_AVAILABLE, NOT_RUN, GridEntry, entry_of
from suite.sweep import journal
from suite.sweep.planning import Planned
from suite.sweep.runner import Runner


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def announce(planned: Sequence[Planned]) -> None:
    """Say how much there is to do and how long it will take, as far as earlier results here tell."""
    left = [one for one in planned if one.to_run]
    known = [one.seconds for one in left if one.seconds is not None]
    done = sum(one.entry.row is not None for one in planned)
    absent = sum(one.entry.status == NOT_AVAILABLE for one in planned)
    refused = len(planned) - len(left) - done - absent
    line = f"{len(planned)} cells: {done} done, {absent} N/A, {len(left)} to run"
    line += f", {refused} refused" if refused else ""
    if known:
        line += f"; {_minutes(sum(known))} for {len(known)} of them, from earlier results here"
    if len(known) < len(left):
        line += f"; no estimate for {len(left) - len(known)}: no earlier result here"
    say(line)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def listing(planned: Sequence[Planned]) -> str:
    """One line a cell: state, time, words, why."""
    lines = []
    for one in planned:
        state = "to run" if one.to_run else "done" if one.entry.row is not None else one.entry.status
        time = "null" if one.to_run and one.seconds is None else ""
        time = _minutes(one.seconds) if one.to_run and one.seconds is not None else time
        lines.append(f"{state:<7} {time:>7}  {one.cell.title}  {one.entry.why}".rstrip())
    return "\n".join(lines)


def carry_out(
    planned: Sequence[Planned], results: Path, places: Sequence[str], code: str
) -> tuple[list[GridEntry], bool]:
    """Run what is to run, one after the other: the cells as they then stand, and whether that was cut off."""
    entries = [one.entry for one in planned]
    left = [at for at, one in enumerate(planned) if one.to_run]
    with journal.locked(results) as lock:
        before = journal.read(results)
        for one in planned:
            last = journal.latest(before, one.cell.words, code)
            said = (one.entry.status, one.entry.why)
            if one.entry.row is None and said[0] != NOT_RUN and said != (last and (last.status, last.reason)):
                _note(one, one.exit_code, *said, code, lock)
        runner = Runner(lock)
        with runner.minding_signals():
            for number, at in enumerate(left, 1):
                if runner.interrupted:
                    break
                say(f"[{number}/{len(left)}] {planned[at].cell.title}")
                entries[at] = _run_one(runner, planned[at], places, code, lock)
    for at in left:
        line = journal.latest(before, planned[at].cell.words, code)
        if entries[at] is planned[at].entry and line is not None:  # not reached: what it came to last time
            entries[at] = replace(entries[at], status=line.status, why=line.reason)
    return entries, runner.interrupted


def _run_one(runner: Runner, one: Planned, places: Sequence[str], code: str, lock: int) -> GridEntry:
    """Run one cell; what came of it. A cell that was interrupted stays as it was planned."""
    ended = runner.run([*one.cell.words, *places])
    if ended.folder is not None:
        entry = entry_of(row_of(ended.folder))
        if entry.settled:
            say(f"    {entry.text}, {_minutes(ended.seconds)}")
            return entry
    if runner.interrupted:
        return one.entry
    status = NOT_AVAILABLE if ended.exit_code == Unsupported.code else FAILED
    _note(one, ended.exit_code, status, ended.reason, code, lock)
    for line in ended.last if status == FAILED else ():
        say(f"    | {line}")
    say(f"    {status} (exit code {ended.exit_code}): {ended.reason}")
    return replace(one.entry, status=status, why=ended.reason)


def _note(one: Planned, exit_code: int | None, status: str, reason: str, code: str, lock: int) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    journal.append(
        lock,
        journal.JournalLine(
            now, one.cell.words, code, status, exit_code, reason, one.entry.group, one.entry.key
        ),
    )
