"""``python -m suite check PATH…``: the verdict on results, for people or as JSON.

Exit codes: 0 accepted (flags are printed and counted), 1 rejected, 2 usage or internal error, 3 in place of
0 with ``--strict`` when there are flags.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import TextIO

from suite.checker import Finding, Verdict, check_result
from suite.record.safe import safe
from suite.rules import MalformedRules

ACCEPTED, REJECTED, INTERNAL, FLAGGED = 0, 1, 2, 3
_ORDER = {"reject": 0, "flag": 1, "info": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="a result's folder, or its run.jsonl"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--strict", action="store_true", help="exit 3 in place of 0 when there are flags")


def main(args: argparse.Namespace) -> int:
    """Check every path; the worst outcome decides the exit code."""
    verdicts: list[Verdict] = []
    for path in args.paths:
        if not path.exists():
            print(f"check: expected a result's folder, found nothing at {safe(path)}", file=sys.stderr)
            return INTERNAL
        try:
            verdicts.append(check_result(path))
        except MalformedRules as error:
            print(f"check: {safe(error)}", file=sys.stderr)
            return INTERNAL
        except Exception as error:  # noqa: BLE001 - a fault of a rule is the checker's own, never a finding
            traceback.print_exc(file=sys.stderr)
            print(f"check: internal error in the checker: {safe(error)}", file=sys.stderr)
            return INTERNAL
    if args.json:
        print(json.dumps([verdict.as_dict() for verdict in verdicts], indent=2))
    else:
        for verdict in verdicts:
            print_verdict(verdict)
    return exit_code(verdicts, strict=args.strict)


def exit_code(verdicts: list[Verdict], *, strict: bool = False) -> int:
    """The command's exit code for these verdicts."""
    if not all(verdict.accepted for verdict in verdicts):
        return REJECTED
    if strict and any(verdict.flags for verdict in verdicts):
        return FLAGGED
    return ACCEPTED


def print_verdict(verdict: Verdict, file: TextIO | None = None, *, brief: bool = False) -> None:
    """The verdict as text: findings by severity, then one line that sums up.

    ``brief`` names the rules of purely informative findings in one line, for whoever has just run.
    """
    out = sys.stdout if file is None else file
    told = [finding for finding in verdict.findings if not (brief and finding.severity == "info")]
    for finding in sorted(told, key=lambda found: _ORDER[found.severity]):
        print(_lines(finding), file=out)
    if len(told) < len(verdict.findings):
        names = sorted({finding.rule for finding in verdict.findings if finding.severity == "info"})
        print(f"information only: {', '.join(names)} (`python -m suite check` tells)", file=out)
    outcome = "accepted" if verdict.accepted else "rejected"
    if verdict.accepted and not verdict.scored:
        outcome = "accepted, without a score"
    counts = f"{len(verdict.rejections)} rejections, {len(verdict.flags)} flags"
    print(f"{outcome}: {safe(verdict.name)} ({counts}; {safe(verdict.reached)})", file=out)


def _lines(finding: Finding) -> str:
    return (
        f"{finding.severity}: {finding.rule} at {safe(finding.place)}\n"
        f"  expected {safe(finding.expected)}\n"
        f"  found    {safe(finding.actual)}\n"
        f"  mend     {finding.mend}"
    )
