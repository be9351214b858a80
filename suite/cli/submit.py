"""``python -m suite submit``: check a result and package it as a submission, with a system description.

A scaling set (results/sets/<id>) is packaged with all its runs. The submission is a folder under
submissions/<submitter>/. Exit codes: 0, 1 the result is rejected, 2 something is missing, exists already, or
the user declined.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.guard import UsageError
from suite.log.units import count

if TYPE_CHECKING:
    from suite.log.model import Record
    from suite.submissions.signing.keys import PrivateKey

    Described = dict[Path, tuple[Record, dict[str, Any]]]


def main(args: argparse.Namespace) -> int:
    """Package the result; the exit code as above."""
    from suite.compare.scaling_set import is_set
    from suite.submissions import package as submission
    from suite.submissions import system
    from suite.submissions.text import finding_line

    try:
        if (problem := system.submitter_problem(args.submitter)) is not None:
            raise system.SystemProblem(problem)
        if is_set(args.result):
            _submit_set(args)
        else:
            _submit_result(args)
    except submission.Rejected as rejected:
        for found in rejected.findings:
            print(finding_line(found), file=sys.stderr)
        print(f"submit: {rejected}", file=sys.stderr)
        return 1
    except OSError as error:
        raise UsageError(f"cannot write the submission: {error.strerror}: {error.filename}") from error
    return 0


def _submit_result(args: argparse.Namespace) -> None:
    from suite.cli.archives import result_problem
    from suite.submissions import package as submission

    if (problem := result_problem(args.result)) is not None:
        raise UsageError(f"expected a result's folder, found {problem}")
    record = submission.load_accepted(args.result)
    described, key = _described(args, {args.result: record})
    entry = submission.package_result(args.result, record, described[args.result][1], args.submissions, key)
    print(f"submission: {entry.folder}")
    if entry.assurance is not None:
        print(f"assurance: {entry.assurance.level}; for the next level: {entry.assurance.missing}")


def _submit_set(args: argparse.Namespace) -> None:
    from suite.compare.submitted_sets import package_set, records_of

    folder = args.result if args.result.is_dir() else args.result.parent
    described, key = _described(args, records_of(folder))
    package = package_set(folder, described, args.submissions, key)
    print(f"submission: {package}, with {count(len(described), 'run')}")


def _described(
    args: argparse.Namespace, records: Mapping[Path, Record]
) -> tuple[Described, PrivateKey | None]:
    """Each record with its system description, and the key, after the user agreed to what they disclose."""
    from suite.submissions import system
    from suite.submissions.identifying import identifying_facts
    from suite.submissions.plausible import implausible
    from suite.submissions.signing import keys

    beside = args.result / "system.json"
    source = args.system or (beside if beside.is_file() else None)
    stated = system.read_statement(source) if source else {}
    described: Described = {}
    facts: dict[tuple[str, str], None] = {}
    key = None if args.key is None else keys.read(args.key.expanduser())
    for run, record in records.items():
        try:
            description, stated = _describe(record, args.submitter, stated)
            if faults := list(implausible(record, description)):
                raise system.problem_of(faults)
        except system.SystemProblem as problem:
            if source is not None:
                problem.add_note(f"state this in {source}")
            raise
        described[run] = (record, description)
        rows = identifying_facts(record, description, None if key is None else key.public)
        facts |= dict.fromkeys(rows)  # what several runs of a set share is shown once
    if not _agreed(list(facts), args.yes):
        raise UsageError("nothing was written")
    return described, key


def _agreed(shown: Sequence[tuple[str, str]], yes: bool) -> bool:
    """Print what the submission will publish about submitter and machine, and ask whether to write it."""
    from suite.log.safe import safe

    print("What this submission will publish about you and the machine:")
    for name, value in shown:
        print(f"  {name}: {safe(value, 300)}")
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(
            "submit: no terminal to ask on: read the list above, then add --yes (make: YES=1)",
            file=sys.stderr,
        )
        return False
    try:
        return input("Write it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _describe(
    record: Record, submitter: str, stated: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The system description, and ``stated`` with the missing facts, which are asked for on a terminal."""
    from suite.submissions import system

    try:
        return system.describe(record, submitter, stated), stated
    except system.MissingFacts as missing:
        if sys.stdin.isatty() and sys.stderr.isatty():
            stated = stated | ask(missing.names)
            return system.describe(record, submitter, stated), stated
        problem = system.SystemProblem(str(missing))
        problem.add_note(
            "\n`make system RESULT=… OUT=system.toml` writes a file with these lines. Fill them in, and "
            "give it with --system system.toml (make: SYSTEM=system.toml):\n\n"
            + system.template(missing.names)
        )
        raise problem from None


def ask(names: Sequence[str]) -> dict[str, Any]:
    """Ask for each of ``names`` on the terminal until its answer is valid."""
    from suite.submissions import system
    from suite.submissions.plausible import fault_of

    print(
        f"{len(names)} facts about the system are in no log. Ctrl-C stops; nothing is written then.",
        file=sys.stderr,
    )
    answers: dict[str, Any] = {}
    for name in names:
        while name not in answers:
            print(f"{name}: {system.meaning(name)}", file=sys.stderr)
            try:
                answer = input("> ").strip()
            except EOFError:
                raise system.SystemProblem(f"the answers ended before {name}; nothing was packaged") from None
            try:
                value = system.read_answer(name, answer)
            except system.SystemProblem as problem:
                print(problem, file=sys.stderr)
                continue
            if (fault := fault_of(name, value)) is None:
                answers[name] = value
            else:
                print(fault, file=sys.stderr)
    return answers
