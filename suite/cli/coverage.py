"""``python -m suite coverage``: what a submitter has done of closed, what is missing, what cannot be done."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Every workload, framework, phase and precision of closed: done, missing, or impossible with the "
        "reason. Exit codes: 0, or 2 for usage or an internal error."
    )
    parser.add_argument("--submitter", required=True, metavar="ORG", help="as in submissions/<submitter>/")
    parser.add_argument("--root", type=Path, default=Path("submissions"), metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def main(args: argparse.Namespace) -> int:
    """Print the coverage; 0, or 2 for usage or an internal error."""
    from suite.audit import coverage
    from suite.images.inside import code_digest
    from suite.judge.parent import Judge, JudgeError
    from suite.record.safe import safe
    from suite.report.system import SLUG
    from suite.rules import LATEST, load

    if not SLUG.fullmatch(args.submitter) or not args.root.is_dir():
        told = (
            f"a submitter such as my-company and a folder, found {safe(args.submitter)} and {safe(args.root)}"
        )
        print(f"coverage: expected {told}", file=sys.stderr)
        return 2
    rules = load(LATEST)
    try:
        with Judge() as judge:
            finished = coverage.done(judge, args.submitter, args.root)
    except JudgeError as error:
        print(f"coverage: {safe(error, 1000)}", file=sys.stderr)
        return 2
    if not (folder := args.root / args.submitter).is_dir():
        print(f"coverage: {safe(folder)} does not exist: nothing is done", file=sys.stderr)
    found = list(coverage.cells(rules, code_digest(), finished))
    if args.json:
        print(json.dumps(coverage.as_dict(found, args.submitter, rules), indent=2))
    else:
        for line in coverage.lines(found):
            print(safe(line, 1000))
    return 0
