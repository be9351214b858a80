"""``python -m suite doctor``: is this machine fit for the suite, and if not, what mends it."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections import Counter
from contextlib import closing
from pathlib import Path

from suite import workloads
from suite.doctor.checks import examinations
from suite.doctor.examine import Outcome, examine
from suite.doctor.junit import write
from suite.doctor.model import FAIL, OK, SKIP, WARN, Check, Subject
from suite.runtime.engines import ORDER

USAGE = 2
_NAME, _WIDTH, _NARROW = 20, 100, 60
_PLACES = {"data_root": "data", "results_dir": "results", "cache_dir": ".cache"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    known = sorted({framework for name in workloads.names() for framework in workloads.frameworks(name)})
    parser.add_argument("--workload", choices=workloads.names(), help="whose data and images (default: all)")
    parser.add_argument(
        "--framework",
        nargs="+",
        choices=known,
        default=[],
        help="whose images must fit (default: all, as hints)",
    )
    parser.add_argument(
        "--runtime", choices=("auto", *ORDER, "native"), default="auto", help="default: %(default)s"
    )
    parser.add_argument("--no-start", action="store_true", help="start no container")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the checks as JUnit XML too")
    for word, place in _PLACES.items():
        option = "--" + word.replace("_", "-")
        parser.add_argument(
            option, type=Path, default=Path(place), metavar="DIR", help="default: %(default)s"
        )


def main(args: argparse.Namespace) -> int:
    """0 where nothing failed (warnings may be), 1 where something did, 2 where JUnit cannot be written."""
    subject = Subject(
        workload=args.workload,
        frameworks=tuple(args.framework),
        runtime=args.runtime,
        start=not args.no_start,
        **{word: getattr(args, word) for word in _PLACES},
    )
    width = max(_NARROW, shutil.get_terminal_size((_WIDTH, 24)).columns)
    outcomes: list[Outcome] = []
    with closing(examine(subject, examinations(args.runtime))) as found:
        for outcome in found:
            outcomes.append(outcome)
            print(shown(outcome.check, width), flush=True)
    states = Counter(outcome.check.state for outcome in outcomes)
    print(
        f"\ndoctor: {states[OK]} ok, {states[WARN]} warnings, {states[FAIL]} failed, {states[SKIP]} skipped"
    )
    if args.junit is not None:
        try:
            write(args.junit, outcomes)
        except OSError as error:
            print(f"doctor: {args.junit}: {error.strerror}: give --junit a file to write", file=sys.stderr)
            return USAGE
    return 1 if states[FAIL] else 0


def shown(check: Check, width: int) -> str:
    """State, name, what was found; the remedy in one line below, whole, so that it can be copied."""
    margin = " " * (_NAME + 7)
    lines = textwrap.wrap(
        f"{check.state:<4}  {check.name:<{_NAME}} {check.found}",
        width,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join([*lines, *([f"{margin}→ {check.remedy}"] if check.remedy else [])])
