"""``python -m suite check-submissions``: check everything under ``submissions/``.

The layout, each log against the rules, each system description, that log, description and folder agree, and
each scaling set.
Exit codes: 0 accepted, 1 rejected, 2 error, also where the checker failed over one result and judged the
others, 3 instead of 0 with ``--strict`` where there are flags.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """Check the tree at ``args.submissions`` and print what is found."""
    from suite.cli.terminal import text_width
    from suite.submissions.package import check_tree
    from suite.submissions.text import show_all
    from suite.submissions.tree_findings import rejected_folders

    if not args.submissions.is_dir():
        raise UsageError(f"expected a folder of submissions, found none at {args.submissions}")
    width = text_width()
    entries, about_tree = check_tree(args.submissions)
    code = show_all(args.submissions, entries, about_tree, strict=args.strict, width=width)
    rejected = rejected_folders(entries, about_tree, args.submissions)
    rejects, flags = _check_sets(args.submissions, rejected, width)
    if rejects and code != 2:
        return 1
    return 3 if args.strict and flags and code == 0 else code


def _check_sets(root: Path, rejected: Mapping[Path, str], width: int | None) -> tuple[int, int]:
    """Check the scaling sets under ``root`` and print what is found; how many findings reject, and flag.

    ``rejected`` are the submissions that do not count.
    """
    from suite.compare.submitted_sets import check_submitted_sets
    from suite.log.safe import safe
    from suite.log.units import count
    from suite.submissions.text import print_findings

    sets, stray = check_submitted_sets(root, rejected)
    findings = [
        (safe(one.folder.relative_to(root).as_posix()), found) for one in sets for found in one.findings
    ]
    findings += [("", found) for found in stray]
    print_findings(findings, width)
    rejects = sum(found.severity == "reject" for _, found in findings)
    flags = sum(found.severity == "flag" for _, found in findings)
    withdrawn = sum(one.withdrawn for one in sets)
    if sets or stray:
        print(
            f"{count(len(sets), 'scaling set')}: {count(rejects, 'rejecting finding')}, "
            f"{count(flags, 'flag')}" + (f", {withdrawn} with a withdrawn run" if withdrawn else "")
        )
    return rejects, flags
