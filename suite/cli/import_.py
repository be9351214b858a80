"""``python -m suite import``: read MLPerf's published logs, and verify what they state.

MLPerf training logs (:::MLPv0.5.0, :::MLL, :::MLLOG): a log, a folder of result_<i>.txt, or a tree of them.
Verified are runs, seeds, settings, quality, times, copies, log against system description against folder,
and the score recomputed. Exit codes follow ``suite check``: 0 no error, 1 errors, 2 usage or internal error,
3 instead of 0 with ``--strict`` if there are warnings.
"""

from __future__ import annotations

import argparse
import json
import sys

from suite.cli.check import ACCEPTED, FLAGGED, REJECTED
from suite.cli.guard import UsageError, discard_output


def main(args: argparse.Namespace) -> int:
    """Examine the logs in the sandbox, and print the outcome."""
    from suite.cli.archives import problem_of
    from suite.log.safe import safe
    from suite.mllog import show, verify
    from suite.mllog.layout import LayoutError
    from suite.mllog.rounds import ROUNDS, known_round
    from suite.sandbox.sandbox import Sandbox

    if (problem := problem_of(args.logs)) is not None:
        raise UsageError(f"expected a log or a folder of logs, found {problem}")
    if args.round is not None and known_round(args.round) is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in ROUNDS)
        raise UsageError(f"--round: expected one of {known}; found {safe(args.round)}")
    try:
        with Sandbox(verify.MLLOG_TASKS) as sandbox:
            value = verify.verify_tree(sandbox, args.logs, args.round or verify.ANY_ROUND)
    except LayoutError as error:
        raise UsageError(f"{safe(args.logs)}: {error}") from error
    lines = show.text(value) if args.format == "text" else show.markdown(value)
    if args.format == "json":
        lines = iter([json.dumps(value, indent=2, allow_nan=False)])
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:  # head and less end before the end of a long report: no error
        discard_output()
    if value["errors"]:
        return REJECTED
    return FLAGGED if args.strict and value["warnings"] else ACCEPTED
