"""``python -m suite system``: write the file that describes the system of a result, for a person to fill in.

It lists what no log contains, such as the name of the system and its cooling, with the meaning of each line;
`submit --system` reads it. An existing file is never overwritten.
"""

from __future__ import annotations

import argparse
import shlex

from suite.cli.guard import UsageError
from suite.cli.keygen import default_path
from suite.log.units import count

_ANYBODY = "my-company"  # the names to fill in are the same for every submitter


def main(args: argparse.Namespace) -> int:
    """Write the file; returns 0. UsageError if it exists, and the errors of `submit` for the result."""
    from suite.cli.archives import result_problem
    from suite.submissions import package as submission
    from suite.submissions import system
    from suite.submissions.text import finding_line

    if (problem := result_problem(args.result)) is not None:
        raise UsageError(f"expected a result's folder, found {problem}")
    try:
        record = submission.load_accepted(args.result)
    except submission.Rejected as rejected:
        for found in rejected.findings:
            rejected.add_note(finding_line(found))
        raise
    missing: tuple[str, ...] = ()
    try:
        system.describe(record, _ANYBODY, {})
    except system.MissingFacts as facts:
        missing = facts.names
    try:
        with args.out.open("x", encoding="utf-8") as file:
            file.write(
                f"# The system of {record.run_id}: what its log does not contain. Fill in every line.\n"
            )
            file.write(system.template(missing))
    except FileExistsError as error:
        raise UsageError(f"{args.out} exists and is not overwritten: give --out FILE (make: OUT=)") from error
    print(f"written: {args.out}, {count(len(missing), 'line')} to fill in. Then:")
    command = [
        f"RESULT={args.result}",
        f"SUBMITTER={_ANYBODY}",
        f"SYSTEM={args.out}",
        f"KEY={default_path()}",
    ]
    print(shlex.join(["make", "submit", *command]))
    print(
        "KEY= is the private key that you registered (`make keygen`, `make register`); without one leave it "
        "out: the submission is then unsigned, at level L0"
    )
    return 0
