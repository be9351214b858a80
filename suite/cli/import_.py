"""``python -m suite import``: MLPerf's published logs as events, and what can be verified of them.

Exit codes follow ``suite check``: 0 no check failed, 1 one did, 2 usage or internal error, 3 in place of 0
with ``--strict`` where a check could not be decided.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from suite.cli.check import ACCEPTED, FLAGGED, INTERNAL, REJECTED

_FAULT = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Read MLPerf training logs (:::MLPv0.5.0, :::MLL, :::MLLOG): a log, a folder of result_<i>.txt, or a "
        "tree of them, and tell what can be verified: runs, seeds, settings, quality, times, copies, log "
        "against system description against folder, and the score recomputed. Exit codes: 0 no check failed, "
        "1 one did, 2 usage or internal error, 3 in place of 0 with --strict where one could not be decided."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a log, or a folder with logs below it")
    parser.add_argument(
        "--round", metavar="N.N", help="whose rules apply (default: by the folder's name or the format)"
    )
    parser.add_argument("--format", choices=("text", "md", "json"), default="text")
    parser.add_argument(
        "--strict", action="store_true", help="exit 3 in place of 0 where a check is undecided"
    )


def main(args: argparse.Namespace) -> int:
    """Examine in a child, and print."""
    from suite.judge.archive import advice
    from suite.judge.parent import Judge, JudgeError
    from suite.mllog import show, verify
    from suite.mllog.places import PlaceError
    from suite.mllog.rounds import parse_round
    from suite.record.safe import safe

    told = None if args.path.exists() else f"nothing at {safe(args.path)}"
    told = told or advice(args.path)
    if told is not None:
        return _refuse(f"expected a log or a folder of logs, found {told}")
    if args.round is not None and parse_round(args.round) is None:
        return _refuse(f"--round: expected a round such as 0.7 or 4.1, found {safe(args.round)}")
    try:
        with Judge() as judge:
            value = verify.verified(judge, args.path, args.round or verify.ANY_ROUND)
    except PlaceError as error:
        return _refuse(f"{safe(args.path)}: {error}")
    except JudgeError as error:
        return _refuse(safe(error, _FAULT))
    except OSError as error:
        return _refuse(f"{error.strerror}: {safe(error.filename)}")
    if args.format == "json":
        print(json.dumps(value, indent=2, allow_nan=False))
    else:
        for line in show.text(value) if args.format == "text" else show.markdown(value):
            print(line)
    if value["failed"]:
        return REJECTED
    return FLAGGED if args.strict and value["undecided"] else ACCEPTED


def _refuse(why: str) -> int:
    print(f"import: {why}", file=sys.stderr)
    return INTERNAL
