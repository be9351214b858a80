"""``python -m suite check-submissions``: check everything under ``submissions/``.

The layout, each log against the rules, each system description, and that log, description and folder agree.
Exit codes: 0 accepted, 1 rejected, 2 error, also where the checker failed over one result and judged the
others, 3 instead of 0 with ``--strict`` where there are flags.
"""

from __future__ import annotations

import argparse

from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """Check the tree at ``args.submissions`` and print what is found."""
    from suite.submissions.text import check_all

    if not args.submissions.is_dir():
        raise UsageError(f"expected a folder of submissions, found none at {args.submissions}")
    return check_all(args.submissions, strict=args.strict)
