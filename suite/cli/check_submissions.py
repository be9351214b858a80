"""``python -m suite check-submissions``: check everything that is laid out under ``submissions/``."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Check all submissions: the layout, each log against the rules, each system description, and that "
        "log, description and folder agree. Exit codes: 0 accepted, 1 rejected, 2 error, also where the "
        "checker failed over one result and judged the others, 3 in place of 0 with --strict where there are "
        "flags."
    )
    parser.add_argument("root", nargs="?", type=Path, default=Path("submissions"), metavar="DIR")
    parser.add_argument("--strict", action="store_true", help="exit 3 in place of 0 where there are flags")


def main(args: argparse.Namespace) -> int:
    """Check the tree at ``args.root`` and print what is found."""
    from suite.judge.parent import JudgeError
    from suite.record.safe import safe
    from suite.report.submission_text import check_all

    if not args.root.is_dir():
        print(f"check-submissions: no such folder: {args.root}", file=sys.stderr)
        return 2
    try:
        return check_all(args.root, strict=args.strict)
    except JudgeError as error:
        print(f"check-submissions: {safe(error, 1000)}", file=sys.stderr)
        return 2
    except Exception:  # noqa: BLE001 -- Python's own exit code for a traceback is 1, which means "rejected" here
        traceback.print_exc()
        print("check-submissions: internal error, not a fault of a submission", file=sys.stderr)
        return 2
