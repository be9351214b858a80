"""``python -m suite summary``: results and submissions as tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite.report.summary import Table

_PLACES = ("results", "submissions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Tabulate results and submissions. A table holds one division, one kind of data and one mode: "
        "what must not be compared never stands in one table."
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="results, or folders of them (default: results and submissions)",
    )
    parser.add_argument("--format", choices=("csv", "md", "json"), default="md")
    parser.add_argument("--division", choices=("closed", "open", "practice"), help="this division alone")
    parser.add_argument("--data", choices=("real", "synthetic"), help="this kind of data alone")
    parser.add_argument("--mode", choices=("throughput", "quality"), help="this mode alone")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write one file a table there instead of printing (md and json: one file)",
    )


def main(args: argparse.Namespace) -> int:
    """Print or write the tables; 0, or 2 when a place does not exist or cannot be written.

    2 also where the checker itself failed over a result: its row says so, and the others stand.
    """
    from suite.judge.parent import JudgeError
    from suite.record.safe import safe
    from suite.report import summary

    paths = list(args.paths) or [Path(place) for place in _PLACES if Path(place).is_dir()]
    absent = [path for path in paths if not path.exists()]
    if absent:
        print(
            f"summary: no such place: {', '.join(map(str, absent))}; give a result or a folder of results",
            file=sys.stderr,
        )
        return 2
    try:
        collected = summary.collect(paths)
    except JudgeError as error:  # rules or checker are at fault, not a result
        print(f"summary: {safe(error)}", file=sys.stderr)
        return 2
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
        texts = {"summary.md": summary.to_markdown(tables)}
    if args.output is None:
        # An empty line parts the tables of CSV: each begins with its own heading.
        sys.stdout.write("\n".join(texts.values()))
        if not tables:
            print("summary: no results found", file=sys.stderr)
        return _code(collected)
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (args.output / name).write_text(text, encoding="utf-8")
            print(args.output / name)
    except OSError as error:
        print(f"summary: cannot write to {args.output}: {error.strerror}", file=sys.stderr)
        return 2
    return _code(collected)


def _code(tables: tuple[Table, ...]) -> int:
    """0, or 2 where the checker itself failed over a result, whether or not its row is shown."""
    from suite.report.summary import ERROR

    failed = [row for table in tables for row in table.rows if row.status == ERROR]
    for row in failed:
        print(f"summary: no verdict on {row.run_id}: {row.why}", file=sys.stderr)
    return 2 if failed else 0
