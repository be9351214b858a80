"""``python -m suite matrix``: plan many runs, run those that have no result yet, and show one table.

Every workload in every framework, training and inference, or the cells of an experiment. Each is a ``suite
run`` of its own; one with an accepted result of equal settings, code and machine in the results folder
is not run again. Progress goes to stderr, the table to stdout. Exit codes: 0 every cell is accepted,
N/A or out of memory · 1 a cell failed, was rejected or was not run · 10, 15 as `suite run` · 130
interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from suite.plan.errors import BadConfiguration
from suite.plan.options import BUNDLE, PATHS

if TYPE_CHECKING:
    from suite.report.grid import GridEntry
    from suite.sweep.cells import Cell, Experiment

UNFINISHED, INTERRUPTED = 1, 130


def main(args: argparse.Namespace) -> int:
    """Plan, run and show; the exit code as above."""
    from suite.plan.code import code_digest
    from suite.sweep import execution
    from suite.sweep.planning import plan_cells

    paths, options = split_overrides(args.overrides, args.results_dir)
    cells, experiment = _cells(args, options)
    code = code_digest()
    planned = plan_cells(cells, args.results_dir, paths, code)
    if experiment is not None:
        execution.print_progress(f"{experiment.study} ({'; '.join(experiment.sources)})")
    execution.announce(planned)
    if args.dry:
        print(execution.listing(planned))
        return 0
    entries, interrupted = execution.run_cells(planned, args.results_dir, paths, code)
    print(_table(entries, args.format), end="")
    if interrupted:
        execution.print_progress("interrupted: the same command continues with the next cell")
        return INTERRUPTED
    return 0 if all(entry.settled for entry in entries) else UNFINISHED


def split_overrides(given: Sequence[str], results: Path) -> tuple[list[str], list[str]]:
    """(path options, other options) of a matrix; BadConfiguration for options that are flags of it."""
    paths = [f"results_dir={_quoted(results)}"]
    options: list[str] = []
    for override in given:
        name = override.partition("=")[0]
        if name == "results_dir":
            raise BadConfiguration("results_dir: a matrix takes it as a flag, --results-dir DIR")
        if name == "dry":
            raise BadConfiguration("dry: a matrix takes it as a flag, --dry")
        (paths if name in [option.name for option in (*PATHS, BUNDLE)] else options).append(override)
    return paths, options


def _quoted(path: Path) -> str:
    """A path as quoted text for Hydra."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _cells(args: argparse.Namespace, options: Sequence[str]) -> tuple[tuple[Cell, ...], Experiment | None]:
    from suite.cli.overrides import check_overrides
    from suite.sweep.cells import filter_cells, pair_cells, read_experiment, with_options

    check_overrides(
        ["workload=ncf", "framework=pytorch", *options], verb="matrix"
    )  # the cells have their own
    experiment = read_experiment(args.experiment) if args.experiment else None
    filters = {
        name: [value for value in getattr(args, name).split(",") if value]
        for name in ("workload", "framework", "phase")
    }
    cells = filter_cells(experiment.cells if experiment else pair_cells(), **filters)
    cells = with_options(cells, options)
    if not cells:
        raise BadConfiguration("matrix: expected at least one cell, found none: the filters leave nothing")
    return cells, experiment


def _table(entries: Sequence[GridEntry], output_format: str) -> str:
    from suite.report import grid

    write = {"text": grid.to_text, "md": grid.to_markdown, "csv": grid.to_csv, "json": grid.to_json}[
        output_format
    ]
    return write(grid.grids(entries))
