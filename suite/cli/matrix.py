"""``python -m suite matrix``: plan many runs, run those that have no result yet, and show one table.

Every workload in every framework, training and inference, or the cells of a file of conf/sweep. Each is a
``suite run`` of its own; one with an accepted result of equal settings, code and machine in the results
folder is not run again. Progress goes to stderr, the table to stdout. Exit codes: 0 every cell is accepted,
N/A or out of memory · 1 a cell failed, was rejected or was not run · 10, 15 as `suite run` · 130
interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from suite.plan.errors import BadConfiguration
from suite.plan.options import BUNDLE, RUN_PATHS

if TYPE_CHECKING:
    from suite.report.grid import GridEntry
    from suite.sweep.cells import Cell
    from suite.sweep.grid import Axes
    from suite.sweep.studies import Sweep

UNFINISHED, INTERRUPTED = 1, 130
_FILTERS = ("workload", "framework", "phase")


def main(args: argparse.Namespace) -> int:
    """Plan, run and show; the exit code as above."""
    from suite.plan.code import code_digest
    from suite.sweep import execution
    from suite.sweep.planning import plan_cells, refuse_invalid

    paths, options = split_overrides(args.overrides, args.results_dir)
    cells, study = _cells(args, options)
    code = code_digest()
    planned = plan_cells(cells, args.results_dir, paths, code)
    refuse_invalid(planned, matrix_axes(options))
    if study is not None:
        execution.print_progress(f"{study.study} ({'; '.join(study.sources)})")
    execution.announce(planned)
    if args.dry:
        print(execution.listing(planned))
        return 0
    ran = execution.run_cells(planned, args.results_dir, code)
    entries = [
        replace(entry, options=one.cell.values) for one, entry in zip(planned, ran.entries, strict=True)
    ]
    print(_table(entries, args.format), end="")
    if ran.interrupted:
        execution.print_progress("interrupted: the same command continues with the next cell")
        return INTERRUPTED
    return 0 if all(entry.settled for entry in ran.entries) else UNFINISHED


def split_overrides(given: Sequence[str], results: Path) -> tuple[list[str], list[str]]:
    """(path options, other options) of a matrix; BadConfiguration for options that are flags of it."""
    from suite.sweep.planning import quoted_path

    paths = [quoted_path("results_dir", results)]
    options: list[str] = []
    for override in given:
        name = override.partition("=")[0]
        if name == "results_dir":
            raise BadConfiguration("results_dir: a matrix takes it as a flag, --results-dir DIR")
        if name == "dry":
            raise BadConfiguration("dry: a matrix takes it as a flag, --dry")
        (paths if name in [option.name for option in (*RUN_PATHS, BUNDLE)] else options).append(override)
    return paths, options


def matrix_axes(options: Sequence[str]) -> Axes:
    """The axes of ``options``; BadConfiguration for options that are flags of a matrix."""
    from suite.sweep.grid import parse_axes

    for option in options:
        name, _, value = option.partition("=")
        if name in _FILTERS:
            raise BadConfiguration(f"{option}: expected the flag --{name} {value} in a matrix")
    return parse_axes(options)


def filters_of(args: argparse.Namespace) -> dict[str, list[str]]:
    """The values that the flags --workload, --framework and --phase select; empty lists select all."""
    return {name: [value for value in getattr(args, name).split(",") if value] for name in _FILTERS}


def _cells(args: argparse.Namespace, options: Sequence[str]) -> tuple[tuple[Cell, ...], Sweep | None]:
    from suite.cli.overrides import check_overrides
    from suite.sweep.cells import filter_cells, pair_cells
    from suite.sweep.grid import with_axes
    from suite.sweep.studies import read_sweep

    check_overrides(
        ["workload=ncf", "framework=pytorch", *options], verb="matrix"
    )  # the cells have their own
    study = read_sweep(args.sweep) if args.sweep else None
    cells = filter_cells(study.cells if study else pair_cells(), **filters_of(args))
    cells = with_axes(cells, matrix_axes(options))
    if not cells:
        raise BadConfiguration("matrix: expected at least one cell, found none: the filters leave nothing")
    return cells, study


def _table(entries: Sequence[GridEntry], output_format: str) -> str:
    from suite.report import grid

    write = {"text": grid.to_text, "md": grid.to_markdown, "csv": grid.to_csv, "json": grid.to_json}[
        output_format
    ]
    return write(grid.grids(entries))
