"""``python -m suite plot``: a metric of many results as a figure. `make plot` installs what it draws with."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite.judge.parent import Judge
    from suite.report.grid import Entry

_FILTERS = ("division", "scale", "data", "mode")
_KEYS = ("workload", "framework", "phase", "precision")
MISSING = 13


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    from suite.report.plot import METRICS

    parser.description = (
        "Draw one metric, a panel a benchmark and a bar a framework. What must not be compared is not drawn "
        "together: several divisions, scales, kinds of data, modes or devices are several files."
    )
    parser.add_argument(
        "--results", nargs="+", type=Path, default=[Path("results")], metavar="DIR", help="where results are"
    )
    parser.add_argument("--metric", choices=tuple(METRICS), default="throughput")
    parser.add_argument(
        "--out", type=Path, default=Path("plot.svg"), metavar="FILE", help="a .svg, .png or .pdf"
    )
    for name in (*_FILTERS, *_KEYS):
        parser.add_argument(f"--{name}", default="", metavar="A,B", help=f"only this {name}")


def main(args: argparse.Namespace) -> int:
    """Draw and name the files; 0, 2 with nothing to draw or no place for it, 13 without matplotlib."""
    from suite.judge.parent import Judge, JudgeError
    from suite.record.safe import safe
    from suite.report import plot

    absent = [path for path in args.results if not path.is_dir()]
    if absent:
        return _refuse(f"no such folder: {', '.join(map(str, absent))}; expected a folder of results")
    if args.out.suffix not in (".svg", ".png", ".pdf"):
        return _refuse(f"--out: expected a name that ends in .svg, .png or .pdf, found {args.out.name}")
    try:
        with Judge() as judge:
            entries = [entry for path in args.results for entry in _entries(judge, path)]
    except JudgeError as error:  # rules or checker are at fault, not a result
        return _refuse(safe(error))
    found = [entry for entry in entries if _asked(entry, args)]
    sheets = plot.sheets(found)
    if not sheets:
        return _refuse(
            "expected at least one accepted result, found none; `make summary` shows what there is"
        )
    drawn = 0
    for sheet in sheets:
        name = args.out if len(sheets) == 1 else args.out.with_stem(f"{args.out.stem}-{sheet.name}")
        try:
            plot.draw(sheet, args.metric, name)
        except ImportError:
            print("plot: matplotlib is not installed; `make plot` installs it from its lock", file=sys.stderr)
            return MISSING
        except plot.NothingToDraw as error:
            print(f"plot: {error}", file=sys.stderr)
            continue
        except OSError as error:
            return _refuse(f"cannot write {name}: {error.strerror or error}")
        print(name)
        drawn += 1
    return 0 if drawn else 2


def _refuse(text: str) -> int:
    print(f"plot: {text}", file=sys.stderr)
    return 2


def _entries(judge: Judge, folder: Path) -> list[Entry]:
    """The results under ``folder``, and what the journal of a matrix says could not be run there."""
    from suite.matrix import journal
    from suite.report.grid import NOT_AVAILABLE, Entry, entry_of
    from suite.report.summary import find, judged_row

    entries = [entry for path in find([folder]) if (entry := entry_of(judged_row(judge, path))).settled]
    for line in journal.read(folder):
        if line.status == NOT_AVAILABLE:
            division, scale, data, mode = line.group
            entries.append(Entry((division, scale, data, mode), line.key, line.status, line.reason))
    return entries


def _asked(entry: Entry, args: argparse.Namespace) -> bool:
    """Whether the options let this cell into the figure."""
    values = dict(zip(_FILTERS, entry.group, strict=True)) | {name: entry.key.get(name) for name in _KEYS}
    return all(
        not (allowed := getattr(args, name)) or str(values[name]) in allowed.split(",") for name in values
    )
