"""``python -m suite import``: read MLPerf's published logs, and verify what they state.

MLPerf training logs (:::MLPv0.5.0, :::MLL, :::MLLOG): a log, a folder of result_<i>.txt, or a tree of them.
Verified are runs, seeds, settings, quality, times, copies, log against system description against folder,
and the score recomputed. Exit codes follow ``suite check``: 0 no check failed, 1 one did, 2 usage or
internal error, 3 instead of 0 with ``--strict`` if a check could not be decided.
"""

from __future__ import annotations

import argparse
import json

from suite.cli.check import ACCEPTED, FLAGGED, REJECTED
from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """Examine the logs in the sandbox, and print the outcome."""
    from suite.cli.archives import problem_of
    from suite.log.safe import safe
    from suite.mllog import show, verify
    from suite.mllog.layout import LayoutError
    from suite.mllog.rounds import parse_round
    from suite.sandbox.sandbox import Sandbox

    if (problem := problem_of(args.logs)) is not None:
        raise UsageError(f"expected a log or a folder of logs, found {problem}")
    if args.round is not None and parse_round(args.round) is None:
        raise UsageError(f"--round: expected a round such as 0.7 or 4.1, found {safe(args.round)}")
    try:
        with Sandbox(verify.MLLOG_TASKS) as sandbox:
            value = verify.verify_tree(sandbox, args.logs, args.round or verify.ANY_ROUND)
    except LayoutError as error:
        raise UsageError(f"{safe(args.logs)}: {error}") from error
    if args.format == "json":
        print(json.dumps(value, indent=2, allow_nan=False))
    else:
        for line in show.text(value) if args.format == "text" else show.markdown(value):
            print(line)
    if value["failed"]:
        return REJECTED
    return FLAGGED if args.strict and value["undecided"] else ACCEPTED
