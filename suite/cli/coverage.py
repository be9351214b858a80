"""``python -m suite coverage``: what a submitter has submitted of closed, and what is missing or impossible.

Every workload, framework, phase and precision of closed: done, missing, or impossible with the reason. Exit
codes: 0, or 2 for usage or an internal error; where that is one over a result of the submitter, the coverage
is printed without the result.
"""

from __future__ import annotations

import argparse
import json
import sys

from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """Print the coverage; 0, or 2 where the checker failed over a result of the submitter."""
    from suite.audit import coverage
    from suite.audit.judgement import AUDIT_TASKS
    from suite.cli.terminal import text_width
    from suite.containers.images.inside import code_digest
    from suite.log.safe import safe
    from suite.rules import LATEST, load
    from suite.sandbox.sandbox import Sandbox
    from suite.submissions.system import SLUG

    if not SLUG.fullmatch(args.submitter) or not args.submissions.is_dir():
        found = f"{safe(args.submitter)} and {safe(args.submissions)}"
        raise UsageError(f"expected a submitter such as my-company and a folder, found {found}")
    rules = load(LATEST)
    with Sandbox(AUDIT_TASKS) as sandbox:
        finished, faults = coverage.done(sandbox, args.submitter, args.submissions)
    if not (folder := args.submissions / args.submitter).is_dir():
        print(f"coverage: {safe(folder)} does not exist: nothing is done", file=sys.stderr)
    cells = list(coverage.cells(rules, code_digest(), finished))
    if args.json:
        print(json.dumps(coverage.as_dict(cells, args.submitter, rules), indent=2))
    else:
        for line in coverage.lines(cells, text_width()):
            print(line)
    for fault in faults:
        print(f"coverage: no verdict: {fault}", file=sys.stderr)
    return 2 if faults else 0
