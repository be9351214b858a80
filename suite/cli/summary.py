"""``python -m suite summary``: results and submissions as tables.

A table has one division, one kind of data and one mode, so that all its results are comparable. Exit codes:
0; 2 a path does not exist or cannot be written, or the checker failed for a result, whose row states it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.report.summary import Table

_FOLDERS = ("results", "submissions")


def main(args: argparse.Namespace) -> int:
    """Print or write the tables; the exit code as above."""
    from suite.compare.result_row import checked_rows
    from suite.report import markdown, summary

    paths = list(args.result) or [Path(name) for name in _FOLDERS if Path(name).is_dir()]
    absent = [path for path in paths if not path.exists()]
    if absent:
        raise UsageError(
            f"expected a result or a folder of results, found nothing at {', '.join(map(str, absent))}"
        )
    collected = summary.tables_of(checked_rows(paths))
    tables = tuple(
        table
        for table in collected
        if (args.division or table.division) == table.division
        and (args.data or table.data) == table.data
        and (args.mode or table.mode) == table.mode
    )
    if args.format == "csv":
        texts = {f"summary-{table.name}.csv": summary.to_csv(table) for table in tables}
    elif args.format == "json":
        texts = {"summary.json": summary.to_json(tables) + "\n"}
    else:
        texts = {"summary.md": markdown.to_markdown(tables)}
    if args.out is None:
        # An empty line separates the tables of CSV, which have different headings.
        sys.stdout.write("\n".join(texts.values()))
        if not tables:
            print("summary: no results found", file=sys.stderr)
        return _code(collected)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (args.out / name).write_text(text, encoding="utf-8")
            print(args.out / name)
    except OSError as error:
        raise UsageError(f"cannot write to {args.out}: {error.strerror}") from error
    return _code(collected)


def _code(tables: tuple[Table, ...]) -> int:
    """0, or 2 if the checker failed for a result, whether or not its row is shown."""
    from suite.compare.result_row import ERROR

    failed = [row for table in tables for row in table.rows if row.status == ERROR]
    for row in failed:
        print(f"summary: no verdict on {row.run_id}: {row.why}", file=sys.stderr)
    return 2 if failed else 0
