"""``python -m suite quality``: train every pair to its target, from several seeds, and show a table.

Exit codes: 0 every run reached its target or is N/A · 1 one did not, failed or is left to do · 10, 15 as
`suite run` · 130 interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from suite.plan.errors import Refusal

FORMATS = ("text", "md", "json")
UNFINISHED, INTERRUPTED = 1, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Train every workload in every framework until it reaches the target of its rules: three seeds in "
        "PyTorch, one in the others, or as many as --seeds says. Each is a `suite run` with mode=quality; "
        "those that have a result of the same settings, code and machine are not run again."
    )
    for name in ("workload", "framework"):
        parser.add_argument(f"--{name}", default="", metavar="A,B", help=f"only runs of this {name}")
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of each pair, each from another seed")
    parser.add_argument("--dry", action="store_true", help="show the plan and the times, and do nothing")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="results folder")
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the table")
    parser.add_argument(
        "words", nargs="*", metavar="WORD=VALUE", help="further words of `suite run`; precision=fp32,bf16"
    )


def main(args: argparse.Namespace) -> int:
    """Plan, run and show; the exit code as above."""
    from suite.cli.matrix import split_words
    from suite.cli.run import refuse
    from suite.matrix import execution
    from suite.matrix.cells import chosen, to_target, with_words
    from suite.matrix.planning import plan_cells
    from suite.plan.code import code_digest
    from suite.report import targets

    try:
        places, words = split_words(args.words, args.results)
        filters = {name: [word for word in getattr(args, name).split(",") if word] for name in _FILTERS}
        cells = with_words(chosen(to_target(args.seeds), **filters), words)
        code = code_digest()
        planned = plan_cells(cells, args.results, places, code)
        execution.announce(planned)
        if args.dry:
            print(execution.listing(planned))
            return 0
        entries, interrupted = execution.carry_out(planned, args.results, places, code)
    except Refusal as error:
        return refuse(error)
    rows = targets.rows(entries)
    write = {"text": targets.to_text, "md": targets.to_markdown, "json": targets.to_json}[args.format]
    print(write(rows), end="")
    if interrupted:
        execution.say("interrupted: the same command goes on where this one stopped")
        return INTERRUPTED
    return 0 if all(row.done for row in rows) else UNFINISHED


_FILTERS = ("workload", "framework")
