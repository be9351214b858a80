"""``python -m suite doctor``: check whether this machine can run the suite, and print the fixes.

Exit codes: 0 no check failed (there may be warnings), 1 a check failed, 2 usage or internal error.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections import Counter
from contextlib import closing

from suite.cli.guard import UsageError
from suite.doctor.checks import examinations
from suite.doctor.examine import ExaminationOutcome, examine
from suite.doctor.junit import write
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject
from suite.log.units import count

_NAME, _WIDTH, _NARROW = 20, 100, 60


def main(args: argparse.Namespace) -> int:
    """Print every check; 0 if none failed, else 1. UsageError if JUnit XML cannot be written."""
    subject = Subject(
        workload=args.workload,
        frameworks=tuple(args.framework),
        runtime=args.runtime,
        start=args.start,
        data_root=args.data_root,
        results_dir=args.results_dir,
        cache_dir=args.cache_dir,
    )
    width = max(_NARROW, shutil.get_terminal_size((_WIDTH, 24)).columns)
    outcomes: list[ExaminationOutcome] = []
    with closing(examine(subject, examinations(args.runtime))) as found:
        for outcome in found:
            outcomes.append(outcome)
            print(shown(outcome.check, width), flush=True)
    states = Counter(outcome.check.state for outcome in outcomes)
    print(
        f"\ndoctor: {states[OK]} ok, {count(states[WARN], 'warning')}, {states[FAIL]} failed, "
        f"{states[SKIP]} skipped"
    )
    if args.junit is not None:
        try:
            write(args.junit, outcomes)
        except OSError as error:
            raise UsageError(
                f"--junit: {error.strerror}: {args.junit}; give --junit a file that can be written"
            ) from error
    return 1 if states[FAIL] else 0


def shown(check: DoctorCheck, width: int) -> str:
    """State, name and found text; below it the fix, unwrapped so that it can be copied."""
    margin = " " * (_NAME + 7)
    lines = textwrap.wrap(
        f"{check.state:<4}  {check.name:<{_NAME}} {check.found}",
        width,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join([*lines, *([f"{margin}→ {check.fix}"] if check.fix else [])])
