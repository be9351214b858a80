"""``python -m suite plot``: draw a metric of results: a panel per benchmark, a bar per framework.

Results that must not be compared are not drawn together: each division, scale, kind of data, mode and number
of devices has its own file. ``make plot`` installs matplotlib. Exit codes: 0; 2 nothing to draw, or the file
cannot be written; 13 without matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.report.grid import GridEntry
    from suite.sandbox.sandbox import Sandbox

_FILTERS = ("division", "scale", "data", "mode")
_KEYS = ("workload", "framework", "phase", "precision")
MISSING = 13


def main(args: argparse.Namespace) -> int:
    """Draw and name the files; the exit code as above."""
    from suite.compare.comparable import COMPARE_TASKS
    from suite.report import plot
    from suite.sandbox.sandbox import Sandbox

    absent = [path for path in args.results_dir if not path.is_dir()]
    if absent:
        raise UsageError(f"no such folder: {', '.join(map(str, absent))}; expected a folder of results")
    if args.out.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(f"--out: expected a name that ends in .svg, .png or .pdf, found {args.out.name}")
    with Sandbox(COMPARE_TASKS) as sandbox:
        entries = [entry for path in args.results_dir for entry in _entries(sandbox, path)]
    found = [entry for entry in entries if _asked(entry, args)]
    sheets = plot.sheets(found)
    if not sheets:
        raise UsageError(
            "expected at least one accepted result, found none; `make summary` lists the results"
        )
    drawn = 0
    for sheet in sheets:
        name = args.out if len(sheets) == 1 else args.out.with_stem(f"{args.out.stem}-{sheet.name}")
        try:
            plot.draw(sheet, args.metric, name)
        except ImportError:
            print("plot: matplotlib is not installed; `make plot` installs it from its lock", file=sys.stderr)
            return MISSING
        except plot.NoMetricToDraw as error:
            print(f"plot: {error}", file=sys.stderr)
            continue
        except OSError as error:
            raise UsageError(f"cannot write {name}: {error.strerror or error}") from error
        print(name)
        drawn += 1
    return 0 if drawn else 2


def _entries(sandbox: Sandbox, folder: Path) -> list[GridEntry]:
    """The results under ``folder``, and the cells that are N/A in the journal of a matrix."""
    from suite.compare.result_row import checked_row, result_folders
    from suite.report.grid import NOT_AVAILABLE, GridEntry, entry_of
    from suite.sweep import journal

    entries = [
        entry for path in result_folders([folder]) if (entry := entry_of(checked_row(sandbox, path))).settled
    ]
    for line in journal.read(folder):
        if line.status == NOT_AVAILABLE:
            division, scale, data, mode = line.group
            entries.append(GridEntry((division, scale, data, mode), line.key, line.status, line.reason))
    return entries


def _asked(entry: GridEntry, args: argparse.Namespace) -> bool:
    """Whether the filters include this cell."""
    values = dict(zip(_FILTERS, entry.group, strict=True)) | {name: entry.key.get(name) for name in _KEYS}
    return all(
        not (allowed := getattr(args, name)) or str(values[name]) in allowed.split(",") for name in values
    )
