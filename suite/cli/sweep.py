"""``python -m suite sweep``: run a grid of options in random order, and show one table with every outcome.

``--grid 'batch=32,64 runtime.cpus=1,2'`` spans the grid; ``--sweep NAME`` takes one of conf/sweep, such as a
published study. Each cell is a ``suite run``; one that has an accepted result of equal settings, code and
machine is not run again, so that the same command continues a sweep that was interrupted or killed. The first
cell is measured again after every ten: the reference, which shows drift. Progress goes to stderr, the table
to stdout. Exit codes: 0 every cell is ok, oom or skipped · 1 one ended in error or by its time limit, or was
not run · 10, 15 as `suite run` · 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import INTERRUPTED, progress
from suite.cli.matrix import UNFINISHED, filters_of, split_overrides
from suite.plan.errors import BadConfiguration, did_you_mean, one_of
from suite.plan.options import by_name

if TYPE_CHECKING:
    from suite.sweep.cells import Cell
    from suite.sweep.grid import Axes
    from suite.sweep.journal import JournalLine
    from suite.sweep.planning import PlannedCell
    from suite.sweep.studies import Sweep

_DISK = "disk"
_FIRST = ("workload", "framework", "phase")


def main(args: argparse.Namespace) -> int:
    """Plan, run and show; the exit code as above."""
    from suite.compare.published import figures_of
    from suite.log.canonical import sha256_hex
    from suite.plan.code import code_digest
    from suite.report import sweep_table
    from suite.sweep import execution, journal
    from suite.sweep.cells import axes_of
    from suite.sweep.order import steps_of
    from suite.sweep.planning import plan_cells, refuse_invalid, unknown_disk

    paths, options = split_overrides(args.overrides, args.results_dir)
    cells, axes, study = _cells(args, options)
    code, disks = code_digest(), _disks(args.disks)
    # Those of a study are skipped: a machine need not have every disk of it.
    if unknown := next((name for name in axes.get(_DISK, ()) if name not in disks), None):
        raise BadConfiguration(unknown_disk(unknown, disks))
    planned = plan_cells(cells, args.results_dir, paths, code, disks=disks)
    refuse_invalid(planned, axes)
    identity = json.dumps([[cell.options for cell in cells], code]).encode()
    sweep = sha256_hex(identity)[:12]
    lines = journal.read(args.results_dir)
    planned = tuple(_without_timed_out(one, lines, code, args.timeout) for one in planned)
    if study is not None:  # its cells were not chosen for this version: what is refused is skipped
        planned = tuple(_skipped_if_refused(one) for one in planned)
    seed = args.seed
    if seed is None:
        seed = journal.last_seed(args.results_dir, sweep)
    runnable = [index for index, one in enumerate(planned) if one.to_run or one.entry.row is not None]
    left = [index for index, one in enumerate(planned) if one.to_run]
    if seed is None and not args.dry:
        seed = secrets.randbelow(2**32)
    first = cells[runnable[0]].options if runnable else ()
    earlier = execution.earlier_references(lines, args.results_dir, sweep, first)
    steps = steps_of(runnable, left, earlier.keys(), seed or 0)
    if study is not None:
        progress(f"{study.study} ({'; '.join(study.sources)})" if study.sources else study.study)
    execution.announce(planned, len(steps) - len(left))
    progress(f"sweep {sweep}, " + ("a seed is drawn at the start" if seed is None else f"seed {seed}"))
    if args.dry:
        if study is not None and study.note:
            progress(f"note: {study.note}")
        print(execution.listing(planned))
        return 0
    begun = journal.SweepLine(
        sweep, seed or 0, len(cells), study=study.name if study is not None else "", axes=axes_of(cells)
    )
    ran = execution.run_cells(planned, args.results_dir, code, steps, begun, args.timeout)
    references = {**earlier, **ran.references}
    if 0 in references:
        ran.entries[runnable[0]] = references[0]
    figures = study.published if study is not None else ()
    table = sweep_table.SweepTable(
        tuple(
            sweep_table.SweepRow(cell.values, entry, figures_of(figures, cell.values))
            for cell, entry in zip(cells, ran.entries, strict=True)
        ),
        tuple(entry for _, entry in sorted(references.items())),
        tuple(study.findings) if study is not None else (),
        (study.sources or (study.study,)) if study is not None else (),
        begun.seed,
    )
    print(sweep_table.WRITERS[args.format](table), end="")
    if ran.interrupted:
        progress("interrupted: the same command continues with the next cell")
        return INTERRUPTED
    return 0 if all(entry.settled for entry in ran.entries) else UNFINISHED


def _cells(args: argparse.Namespace, options: Sequence[str]) -> tuple[tuple[Cell, ...], Axes, Sweep | None]:
    """The cells of the grid or file, the axes that the user named, and the file."""
    from suite.sweep.cells import filter_cells
    from suite.sweep.grid import grid_cells, parse_axes, parse_grid, with_axes
    from suite.sweep.studies import read_sweep

    grid = parse_grid(args.grid)
    axes = {**parse_axes(options)}
    if twice := next((name for name in grid if name in axes), None):
        raise BadConfiguration(
            f"{twice}: expected it once, found it in the grid and as an option; remove one"
        )
    axes |= grid
    filters = filters_of(args)
    if args.sweep:
        if given := next((name for name in _FIRST if name in axes), None):
            raise BadConfiguration(f"{given}: expected it as the flag --{given}, found it in the grid")
        _check(axes, {"workload": ("ncf",), "framework": ("pytorch",)})
        study = read_sweep(args.sweep)
        cells = with_axes(filter_cells(study.cells, **filters), axes)
        if not cells:
            raise BadConfiguration("sweep: expected at least one cell, found none: the filters leave nothing")
        return cells, axes, study
    first = {name: tuple(values) for name, values in filters.items() if values}
    if twice := next((name for name in first if name in axes), None):
        raise BadConfiguration(f"{twice}: expected it once, found it as a flag and in the grid; remove one")
    first |= {name: axes.pop(name) for name in _FIRST if name in axes}
    if not axes and all(len(values) == 1 for values in first.values()):
        raise BadConfiguration(
            "grid: expected axes such as --grid 'batch=32,64' (make: GRID=\"batch=32,64\"), or --sweep with "
            "the name of a file in conf/sweep, found neither"
        )
    _check(axes, first)
    return grid_cells(first | axes), first | axes, None


def _check(axes: Axes, first: Axes) -> None:
    """BadConfiguration for an unknown or missing option, and for a value that is not in a closed list."""
    from suite.cli.overrides import check_overrides

    known = by_name()
    given = {name: ",".join(values) for name, values in first.items()}
    for name, values in axes.items():
        if name == _DISK:
            continue
        choices = known[name].choices() if name in known and not known[name].switch else ()
        if name == "storage" and set(values) - set(choices):
            wrong = next(value for value in values if value not in choices)
            raise BadConfiguration(
                f"storage: expected one of {', '.join(choices)}, the formats of a dataset, found {wrong!r}"
                f"{did_you_mean(wrong, choices)}; the axis of folders on several disks is disk={wrong}, with "
                "DISKS=file.toml"
            )
        for value in values if choices else ():
            one_of(name, value, choices)
        given[name] = values[0]
    check_overrides([f"{name}={value}" for name, value in given.items()], verb="sweep")


def _disks(path: Path | None) -> Mapping[str, Path]:
    """The folders that a file of ``name = "/folder"`` names; BadConfiguration if it is no such file."""
    if path is None:
        return {}
    try:
        named = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"disks: expected a TOML file, found {path} ({error})") from error
    for name, folder in named.items():
        if not isinstance(folder, str) or not Path(folder).expanduser().is_dir():
            raise BadConfiguration(f"disks: expected a folder for {name} in {path.name}, found {folder!r}")
    return {name: Path(folder).expanduser().resolve() for name, folder in named.items()}


def _without_timed_out(
    one: PlannedCell, lines: Sequence[JournalLine], code: str, timeout_s: float | None
) -> PlannedCell:
    """``one``, not to be run if it reached a time limit before that was no shorter than ``timeout_s``."""
    from suite.report.grid import TIMED_OUT
    from suite.sweep import journal

    last = journal.latest(lines, one.cell.options, code)
    if not one.to_run or timeout_s is None or last is None or last.outcome != "timeout":
        return one
    if last.timeout_s is None or last.timeout_s < timeout_s:
        return one
    return replace(one, entry=replace(one.entry, status=TIMED_OUT, why=last.reason))


def _skipped_if_refused(one: PlannedCell) -> PlannedCell:
    from suite.report.grid import FAILED, NOT_AVAILABLE

    refused = one.entry.row is None and one.entry.status == FAILED
    return replace(one, entry=replace(one.entry, status=NOT_AVAILABLE)) if refused else one
