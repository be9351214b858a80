"""``python -m suite summary``: results and submissions as tables.

In a terminal each table has one division, one kind of data and one mode; what all its rows share is said
once, and what differs is a column. CSV is one table: a row per result, or per repeat (csv-repeats).
Without a path, all results of this checkout are shown; one line counts the submissions beside them.

Exit codes: 0; 2 a path does not exist or cannot be written, or the checker failed for a result, whose row
states it.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.compare.result_row import ResultRow
    from suite.report.summary import Table

_RESULTS, _SUBMISSIONS = Path("results"), Path("submissions")
_OF_GROUP = ("division", "data", "mode")
_OF_KEY = ("workload", "framework", "phase", "precision", "scale")
_FILES = {
    "csv": "summary.csv",
    "csv-repeats": "summary-repeats.csv",
    "json": "summary.json",
    "md": "summary.md",
}


def main(args: argparse.Namespace) -> int:
    """Print or write the tables; the exit code as above."""
    from suite.cli.archives import problem_of
    from suite.compare.result_row import checked_folders
    from suite.compare.scaling_set import is_set
    from suite.log.units import count
    from suite.report import summary

    paths, submitted = (list(args.result), 0) if args.result else _default_folders()
    absent = [path for path in paths if not path.exists()]
    if absent:
        raise UsageError(
            f"expected a result or a folder of results, found nothing at {', '.join(map(str, absent))}"
        )
    if (given := next(filter(is_set, paths), None)) is not None:
        raise UsageError(f"expected a result or a folder of results, found {problem_of(given)}")
    known = checked_folders(paths)
    rows = {folder: row for folder, row in known.items() if _asked(row, args)}
    if args.here:
        here = _machine()
        rows = {folder: row for folder, row in rows.items() if _ran_on(row, here)}
    tables = summary.tables_of(list(rows.values()))
    if not rows:
        print(f"summary: no results found{_instead(known.values(), args)}", file=sys.stderr)
    if args.out is not None:
        _write(args.out, _FILES.get(args.format, "summary.txt"), _text(args.format, tables, rows))
    elif args.format == "text":
        from suite.report.summary_text import print_tables

        if tables:  # else the message above says it
            print_tables(tables)
    else:
        sys.stdout.write(_text(args.format, tables, rows))
    if submitted:
        where = sys.stdout if args.format == "text" and args.out is None else sys.stderr
        shown = f"`make summary RESULT={_SUBMISSIONS}` shows them"
        print(f"not shown: {count(submitted, 'submitted result')} in {_SUBMISSIONS}/; {shown}", file=where)
    return _code(known.values())


def _default_folders() -> tuple[list[Path], int]:
    """The results of this checkout and their submissions, and the number of all other submissions.

    A result that was submitted is shown as submitted: its submitter may have withdrawn it.
    """
    from suite.compare.result_row import result_folders

    results = list(result_folders([_RESULTS]))
    names = {folder.name for folder in results}
    submitted = list(result_folders([_SUBMISSIONS]))
    shown = [folder for folder in submitted if folder.name in names]
    return [*results, *shown], len(submitted) - len(shown)


def _text(output_format: str, tables: tuple[Table, ...], rows: Mapping[Path, ResultRow]) -> str:
    from suite.compare.repeats import with_repeats
    from suite.report import markdown, summary

    if output_format == "csv":
        return summary.to_csv(tables)
    if output_format == "csv-repeats":
        order = {row.digest: at for at, row in enumerate(row for table in tables for row in table.rows)}
        by_table = dict(sorted(rows.items(), key=lambda item: order[item[1].digest]))
        try:
            return summary.to_csv_of_repeats(with_repeats(by_table))
        except ValueError as error:
            raise UsageError(str(error)) from error
    if output_format == "json":
        return summary.to_json(tables) + "\n"
    if output_format == "md":
        return markdown.to_markdown(tables)
    from rich.console import Console

    from suite.report.summary_text import print_tables

    out = io.StringIO()
    print_tables(tables, Console(file=out, width=200, color_system=None))
    return out.getvalue()


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error
    print(folder / name)


def _asked(row: ResultRow, args: argparse.Namespace) -> bool:
    """Whether the filters include this row."""
    group = dict(zip(_OF_GROUP, row.group, strict=True))
    if any(getattr(args, name) not in (None, "", value) for name, value in group.items()):
        return False
    for name in _OF_KEY:
        wanted = getattr(args, name)
        if wanted and str(row.key.get(name)) not in wanted.split(","):
            return False
    return args.since is None or row.started >= args.since


def _machine() -> dict[str, Any]:
    """What identifies this machine, as a log states it."""
    from suite.metrics.machine import identity
    from suite.plan.machine import detect_machine
    from suite.telemetry.facts import machine_facts

    facts, _ = machine_facts([gpu.uuid for gpu in detect_machine().gpus])
    return identity(facts)


def _ran_on(row: ResultRow, here: Mapping[str, Any]) -> bool:
    """Whether a result is of this machine: equal processor and memory, and accelerators that are here."""
    ours, theirs = dict(here), dict(row.machine)
    present, used = set(ours.pop("accelerators")), set(theirs.pop("accelerators", ()))
    return ours == theirs and used <= present


def _instead(known: Iterable[ResultRow], args: argparse.Namespace) -> str:
    """The values that the results have where a filter names another one."""
    rows = list(known)
    if not rows:
        return ""
    for name in _OF_KEY:
        found = sorted({str(row.key[name]) for row in rows if row.key.get(name)})
        if (wanted := getattr(args, name)) and not set(wanted.split(",")) & set(found):
            return f": no {name} {wanted} among {len(rows)} results; there are {', '.join(found)}"
    return f": the filters leave none of {len(rows)} results"


def _code(rows: Iterable[ResultRow]) -> int:
    """0, or 2 if the checker failed for a result, whether or not its row is shown."""
    from suite.compare.result_row import ERROR

    failed = [row for row in rows if row.status == ERROR]
    for row in failed:
        print(f"summary: no verdict on {row.run_id}: {row.why}", file=sys.stderr)
    return 2 if failed else 0
