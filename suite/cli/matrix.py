"""``python -m suite matrix``: plan many runs, run those that have no result yet, and show one table.

Exit codes: 0 every cell is accepted, N/A or out of memory · 1 a cell failed, was rejected or is left to do ·
10, 15 as `suite run` · 130 interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from suite.plan.errors import BadConfiguration, Refusal
from suite.plan.settings import PLACES

if TYPE_CHECKING:
    from suite.matrix.cells import Cell, Experiment
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
    from suite.matrix import execution
    from suite.matrix.planning import plan_cells
    from suite.plan.code import code_digest

    try:
        places, words = split_words(args.words, args.results)
        cells, experiment = _cells(args, words)
        code = code_digest()
        planned = plan_cells(cells, args.results, places, code)
        if experiment is not None:
            execution.say(f"{experiment.study} ({'; '.join(experiment.sources)})")
        execution.announce(planned)
        if args.dry:
            print(execution.listing(planned))
            return 0
        entries, interrupted = execution.carry_out(planned, args.results, places, code)
        print(_table(entries, args.format), end="")
        if interrupted:
            execution.say("interrupted: the same command goes on where this one stopped")
            return INTERRUPTED
        return 0 if all(entry.settled for entry in entries) else UNFINISHED
    except Refusal as error:
        return refuse(error)


def split_words(given: Sequence[str], results: Path) -> tuple[list[str], list[str]]:
    """(places, other words) of the command line of a matrix; BadConfiguration for what has an option."""
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


def _table(entries: Sequence[Entry], form: str) -> str:
    from suite.report import grid

    write = {"text": grid.to_text, "md": grid.to_markdown, "csv": grid.to_csv, "json": grid.to_json}[form]
    return write(grid.grids(entries))
