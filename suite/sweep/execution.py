"""Execute a planned matrix: one run after the other, with progress on stderr and a journal of failures."""

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
from suite.sweep.planning import PlannedCell
from suite.sweep.runner import Runner


def print_progress(line: str) -> None:
    """Print one line on stderr."""
    print(line, file=sys.stderr, flush=True)


def announce(planned: Sequence[PlannedCell]) -> None:
    """Print the number of runs to do, and an estimate of their time from earlier results in the folder."""
    left = [one for one in planned if one.to_run]
    known = [one.seconds for one in left if one.seconds is not None]
    done = sum(one.entry.row is not None for one in planned)
    absent = sum(one.entry.status == NOT_AVAILABLE for one in planned)
    refused = len(planned) - len(left) - done - absent
    line = f"{len(planned)} cells: {done} done, {absent} N/A, {len(left)} to run"
    line += f", {refused} refused" if refused else ""
    if known:
        line += f"; about {_minutes(sum(known))} for {len(known)} of them, as in earlier results"
    if len(known) < len(left):
        line += f"; no estimate for {len(left) - len(known)}: they have no earlier result"
    print_progress(line)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def listing(planned: Sequence[PlannedCell]) -> str:
    """One line for each cell: state, time, title, reason."""
    lines = []
    for one in planned:
        state = "to run" if one.to_run else "done" if one.entry.row is not None else one.entry.status
        time = "null" if one.to_run and one.seconds is None else ""
        time = _minutes(one.seconds) if one.to_run and one.seconds is not None else time
        lines.append(f"{state:<7} {time:>7}  {one.cell.title}  {one.entry.why}".rstrip())
    return "\n".join(lines)


def run_cells(
    planned: Sequence[PlannedCell], results: Path, path_options: Sequence[str], code: str
) -> tuple[list[GridEntry], bool]:
    """Run the cells that have no result, one after the other.

    Returns the entries of all cells in the order of ``planned``, and whether a signal interrupted the matrix.
    """
    entries = [one.entry for one in planned]
    left = [index for index, one in enumerate(planned) if one.to_run]
    with journal.locked(results) as lock:
        before = journal.read(results)
        for one in planned:
            last = journal.latest(before, one.cell.options, code)
            status, reason = one.entry.status, one.entry.why
            recorded = last is not None and (last.status, last.reason) == (status, reason)
            if one.entry.row is None and status != NOT_RUN and not recorded:
                _record(one, one.exit_code, status, reason, code, lock)
        runner = Runner(lock)
        with runner.handle_signals():
            for number, index in enumerate(left, 1):
                if runner.interrupted:
                    break
                print_progress(f"[{number}/{len(left)}] {planned[index].cell.title}")
                entries[index] = _run_cell(runner, planned[index], path_options, code, lock)
    for index in left:
        line = journal.latest(before, planned[index].cell.options, code)
        if entries[index] is planned[index].entry and line is not None:  # not run: its last recorded status
            entries[index] = replace(entries[index], status=line.status, why=line.reason)
    return entries, runner.interrupted


def _run_cell(
    runner: Runner, one: PlannedCell, path_options: Sequence[str], code: str, lock: int
) -> GridEntry:
    """Run one cell; returns its new entry, or the planned one after an interruption."""
    ended = runner.run([*one.cell.options, *path_options])
    if ended.folder is not None:
        entry = entry_of(row_of(ended.folder))
        if entry.settled:
            print_progress(f"    {entry.text}, {_minutes(ended.seconds)}")
            return entry
    if runner.interrupted:
        return one.entry
    status = NOT_AVAILABLE if ended.exit_code == Unsupported.code else FAILED
    _record(one, ended.exit_code, status, ended.reason, code, lock)
    for line in ended.last_lines if status == FAILED else ():
        print_progress(f"    | {line}")
    print_progress(f"    {status} (exit code {ended.exit_code}): {ended.reason}")
    return replace(one.entry, status=status, why=ended.reason)


def _record(one: PlannedCell, exit_code: int | None, status: str, reason: str, code: str, lock: int) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    journal.append(
        lock,
        journal.JournalLine(
            now, one.cell.options, code, status, exit_code, reason, one.entry.group, one.entry.key
        ),
    )
