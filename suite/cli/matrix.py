"""``python -m suite matrix``: plan many runs, run those that have no result yet, and show one table.

Exit codes: 0 every cell is accepted, N/A or out of memory · 1 a cell failed, was rejected or is left to do ·
10, 15 as `suite run` · 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from suite.plan.errors import BadConfiguration, Refusal, Unsupported
from suite.plan.settings import PLACES

if TYPE_CHECKING:
    from suite.matrix.cells import Cell, Experiment
    from suite.matrix.planning import Planned
    from suite.matrix.runner import Runner
    from suite.report.grid import Entry

FORMATS = ("text", "md", "csv", "json")
UNFINISHED, INTERRUPTED = 1, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Run every workload in every framework, training and inference, or the cells of an experiment. Each "
        "is a `suite run` of its own; one that has an accepted result of the same settings, code and "
        "machine in the results folder is not run again. Progress goes to stderr, the table to stdout."
    )
    parser.add_argument(
        "--experiment", metavar="NAME", help="a study of conf/experiment, or a path to a .yaml"
    )
    for name in ("workload", "framework", "phase"):
        parser.add_argument(f"--{name}", default="", metavar="A,B", help=f"only cells of this {name}")
    parser.add_argument("--dry", action="store_true", help="show the plan and the times, and do nothing")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="results folder")
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the table")
    parser.add_argument(
        "words", nargs="*", metavar="WORD=VALUE", help="further words of `suite run`; batch=16,32 is an axis"
    )


def main(args: argparse.Namespace) -> int:
    """Plan, run and show; the exit code as above."""
    from suite.cli.run import refuse
    from suite.matrix.planning import plan_cells
    from suite.plan.code import code_digest

    try:
        places, words = _split(args.words, args.results)
        cells, experiment = _cells(args, words)
        code = code_digest()
        planned = plan_cells(cells, args.results, places, code)
        if experiment is not None:
            _say(f"{experiment.study} ({'; '.join(experiment.sources)})")
        _announce(planned)
        if args.dry:
            print(_listing(planned))
            return 0
        return _carry_out(args, planned, places, code)
    except Refusal as error:
        return refuse(error)


def _split(given: Sequence[str], results: Path) -> tuple[list[str], list[str]]:
    """(places, other words) of the command line."""
    places = [f"results_dir={_quoted(results)}"]
    words: list[str] = []
    for word in given:
        name = word.partition("=")[0]
        if name == "results_dir":
            raise BadConfiguration("results_dir: a matrix takes it as an option, --results DIR")
        if name == "dry":
            raise BadConfiguration("dry: a matrix takes it as an option, --dry")
        (places if name in (*PLACES, "bundle") else words).append(word)
    return places, words


def _quoted(path: Path) -> str:
    """A path as Hydra reads any text."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _cells(args: argparse.Namespace, words: Sequence[str]) -> tuple[tuple[Cell, ...], Experiment | None]:
    from suite.cli.words import check_words
    from suite.matrix.cells import chosen, every_pair, read_experiment, with_words

    check_words(["workload=ncf", "framework=pytorch", *words])  # names alone: the cells have their own
    experiment = read_experiment(args.experiment) if args.experiment else None
    filters = {
        name: [word for word in getattr(args, name).split(",") if word]
        for name in ("workload", "framework", "phase")
    }
    cells = chosen(experiment.cells if experiment else every_pair(), **filters)
    cells = with_words(cells, words)
    if not cells:
        raise BadConfiguration("matrix: expected at least one cell, found none: the filters leave nothing")
    return cells, experiment


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _announce(planned: Sequence[Planned]) -> None:
    """How much there is to do and how long it will take, as far as earlier results here tell."""
    from suite.report.grid import NOT_AVAILABLE

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
    _say(line)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _listing(planned: Sequence[Planned]) -> str:
    """One line a cell: state, time, words, why."""
    lines = []
    for one in planned:
        state = "to run" if one.to_run else "done" if one.entry.row is not None else one.entry.status
        time = "null" if one.to_run and one.seconds is None else ""
        time = _minutes(one.seconds) if one.to_run and one.seconds is not None else time
        lines.append(f"{state:<7} {time:>7}  {one.cell.title}  {one.entry.why}".rstrip())
    return "\n".join(lines)


def _carry_out(args: argparse.Namespace, planned: Sequence[Planned], places: Sequence[str], code: str) -> int:
    """Run what is to run, one after the other, and print the table."""
    from suite.matrix import journal
    from suite.matrix.runner import Runner
    from suite.report.grid import NOT_RUN

    entries = [one.entry for one in planned]
    left = [at for at, one in enumerate(planned) if one.to_run]
    interrupted = False
    with journal.locked(args.results) as lock:
        before = journal.read(args.results)
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
                _say(f"[{number}/{len(left)}] {planned[at].cell.title}")
                entries[at] = _run_one(runner, planned[at], places, code, lock)
            interrupted = runner.interrupted
    for at in left:
        line = journal.latest(before, planned[at].cell.words, code)
        if entries[at] is planned[at].entry and line is not None:  # not reached: what it came to last time
            entries[at] = replace(entries[at], status=line.status, why=line.reason)
    print(_table(entries, args.format), end="")
    if interrupted:
        _say("interrupted: the same command goes on where this one stopped")
        return INTERRUPTED
    return 0 if all(entry.settled for entry in entries) else UNFINISHED


def _run_one(runner: Runner, one: Planned, places: Sequence[str], code: str, lock: int) -> Entry:
    """Run one cell; what came of it. A cell that was interrupted stays as it was planned."""
    from suite.report.grid import FAILED, NOT_AVAILABLE, entry_of
    from suite.report.summary import row_of

    ended = runner.run([*one.cell.words, *places])
    if ended.folder is not None:
        entry = entry_of(row_of(ended.folder))
        if entry.settled:
            _say(f"    {entry.text}, {_minutes(ended.seconds)}")
            return entry
    if runner.interrupted:
        return one.entry
    status = NOT_AVAILABLE if ended.exit_code == Unsupported.code else FAILED
    _note(one, ended.exit_code, status, ended.reason, code, lock)
    for line in ended.last if status == FAILED else ():
        _say(f"    | {line}")
    _say(f"    {status} (exit code {ended.exit_code}): {ended.reason}")
    return replace(one.entry, status=status, why=ended.reason)


def _note(one: Planned, exit_code: int | None, status: str, reason: str, code: str, lock: int) -> None:
    from suite.matrix.journal import Line, append

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    append(
        lock,
        Line(now, one.cell.words, code, status, exit_code, reason, one.entry.group, one.entry.key),
    )


def _table(entries: Sequence[Entry], form: str) -> str:
    from suite.report import grid

    write = {"text": grid.to_text, "md": grid.to_markdown, "csv": grid.to_csv, "json": grid.to_json}[form]
    return write(grid.grids(entries))
