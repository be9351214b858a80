"""``python -m suite quote``: the one sentence of a result that may be published."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite.cli.audit import SUBMISSIONS, UsageError, judged_at

_FAULT = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Print the sentence that may be published of an accepted result with a score "
        "(rules/1.0/PUBLISHING.md)."
    )
    parser.add_argument("--result", type=Path, required=True, metavar="PATH", help="the result's folder")
    parser.add_argument(
        "--submissions", type=Path, default=SUBMISSIONS, metavar="DIR",
        help="the tree with the registry, and the results to compare with (default: submissions)",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Print the sentence: 0, 1 where there is none to publish, 2 for usage or an internal error."""
    from suite.audit.quote import sentence
    from suite.audit.show import verdict
    from suite.judge.parent import JudgeError
    from suite.record.safe import safe

    try:
        value = judged_at(args.result, args.submissions)
    except UsageError as error:
        print(f"quote: {error}", file=sys.stderr)
        return 2
    except JudgeError as error:
        print(f"quote: {safe(error, _FAULT)}", file=sys.stderr)
        return 2
    if value["quote"] is None:
        print(f"quote: {safe(value['why_no_quote'], 240)}", file=sys.stderr)
        print(f"quote: {verdict(value)}", file=sys.stderr)
        return 1
    print(sentence(value["quote"]))
    return 0
