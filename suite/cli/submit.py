"""``python -m suite submit``: check a result, then lay it out under ``submissions/``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = "Check a result and copy it into submissions/<submitter>/ with a system description."
    parser.add_argument("--result", type=Path, required=True, metavar="PATH", help="the result's folder")
    parser.add_argument(
        "--submitter",
        required=True,
        metavar="ORG",
        help="organisation: lower-case letters, digits, single hyphens",
    )
    parser.add_argument(
        "--system",
        type=Path,
        metavar="FILE",
        help="TOML or JSON with what no log tells; names and meanings are listed where it lacks any",
    )
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="sign with this private key (`make keygen` makes one)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask whether to write what is shown")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("submissions"),
        metavar="DIR",
        help="where submissions are kept (default: submissions)",
    )


def main(args: argparse.Namespace) -> int:
    """Lay the result out: 0, or 1 if it is rejected, 2 if something is missing, in the way or not wanted."""
    from suite.report import submission, system
    from suite.report.identifying import identifying
    from suite.report.submission_text import line
    from suite.signing import keys

    try:
        if not system.SLUG.fullmatch(args.submitter) or args.submitter == "registry":
            raise system.SystemProblem(
                f"--submitter: expected lower-case letters, digits and single hyphens, found "
                f"{args.submitter!r}; perhaps {system.slug(args.submitter) or 'my-company'}"
            )
        record = submission.load(args.result)
        beside = args.result / "system.json"
        source = args.system or (beside if beside.is_file() else None)
        stated = system.read_statement(source) if source else {}
        description = _describe(record, args.submitter, stated)
        key = None if args.key is None else keys.read(args.key)
        if not _agreed(identifying(record, description, None if key is None else key.public), args.yes):
            print("submit: nothing was written", file=sys.stderr)
            return 2
        entry = submission.lay_out(args.result, record, description, args.root, key)
    except submission.Rejected as rejected:
        for found in rejected.findings:
            print(line(found, ""), file=sys.stderr)
        print(f"submit: {rejected}", file=sys.stderr)
        return 1
    except (submission.SubmissionError, system.SystemProblem, keys.KeyProblem) as problem:
        print(f"submit: {problem}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"submit: cannot write the submission: {error.strerror}: {error.filename}", file=sys.stderr)
        return 2
    print(f"submission: {entry.folder}")
    if entry.assurance is not None:
        print(f"assurance: {entry.assurance.level}; for the next level: {entry.assurance.missing}")
    return 0


def _agreed(shown: Sequence[tuple[str, str]], yes: bool) -> bool:
    """Show what the submission will tell of the submitter and the machine, and ask whether to write it."""
    from suite.record.safe import safe

    print("What this submission will publish about you and the machine:")
    for name, value in shown:
        print(f"  {name}: {safe(value, 300)}")
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(
            "submit: nobody is there to ask: read the list above, then add --yes (make: YES=1)",
            file=sys.stderr,
        )
        return False
    try:
        return input("Write it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _describe(record: Any, submitter: str, stated: dict[str, Any]) -> dict[str, Any]:
    """The description, with a person's answers where somebody sits at the terminal."""
    from suite.report import system

    try:
        return system.describe(record, submitter, stated)
    except system.Unstated as missing:
        if sys.stdin.isatty() and sys.stderr.isatty():
            return system.describe(record, submitter, stated | ask(missing.names))
        raise system.SystemProblem(
            f"{missing}\n\nNobody but you knows them. Put these lines, filled in, into a file such as "
            "system.toml, and give it with --system system.toml (make: SYSTEM=system.toml):\n\n"
            + system.template(missing.names)
        ) from None


def ask(names: Sequence[str]) -> dict[str, Any]:
    """Ask for each of ``names`` at the terminal until its answer can be read."""
    from suite.report import system

    print(
        f"{len(names)} facts about the system are in no log. Ctrl-C stops without a trace.", file=sys.stderr
    )
    answers: dict[str, Any] = {}
    for name in names:
        while name not in answers:
            print(f"{name}: {system.meaning(name)}", file=sys.stderr)
            try:
                answer = input("> ").strip()
            except EOFError:
                raise system.SystemProblem(f"the answers ended before {name}; nothing was laid out") from None
            try:
                answers[name] = system.read_answer(name, answer)
            except system.SystemProblem as problem:
                print(problem, file=sys.stderr)
    return answers
