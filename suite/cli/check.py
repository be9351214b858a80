"""``python -m suite check PATH…``: the verdict on results, for people or as JSON.

Exit codes: 0 accepted (flags are printed and counted), 1 rejected, 2 usage or internal error, 3 in place of
0 with ``--strict`` when there are flags.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from suite.judge.archive import advice
from suite.judge.parent import FaultError, Judge, JudgeError, Told
from suite.record.finding import Finding
from suite.record.safe import safe
from suite.report.units import count
from suite.rules.places import ENDED, NEWEST

if TYPE_CHECKING:
    from suite.checker import Verdict

ACCEPTED, REJECTED, INTERNAL, FLAGGED = 0, 1, 2, 3
_FAULT = 1000  # characters of a fault of the checker that are told
_ORDER = {"reject": 0, "flag": 1, "info": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="a result's folder, or its run.jsonl"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--strict", action="store_true", help="exit 3 in place of 0 when there are flags")


def main(args: argparse.Namespace) -> int:
    """Check every path in one child; the worst outcome decides the exit code.

    A fault of the checker over one path is told of that one, and the others still have their verdicts.
    """
    for path in args.paths:
        if (told := _unusable(path)) is not None:
            print(f"check: expected a result's folder, found {told}", file=sys.stderr)
            return INTERNAL
    answers: list[Told | FaultError] = []
    with Judge() as judge:
        try:
            answers += [_judged(judge, path) for path in args.paths]
        except JudgeError as error:  # never a finding: the rules are at fault, not the result
            print(f"check: {safe(error, _FAULT)}", file=sys.stderr)
            return INTERNAL
    if args.json:
        print(json.dumps(list(map(_value, args.paths, answers)), indent=2))
    for path, one in zip(args.paths, answers, strict=True):
        if isinstance(one, FaultError):
            print(f"check: {safe(path, _FAULT)}: {safe(one, _FAULT)}", file=sys.stderr)
        elif not args.json:
            print_verdict(one)
    verdicts = [one for one in answers if not isinstance(one, FaultError)]
    return INTERNAL if len(verdicts) < len(answers) else exit_code(verdicts, strict=args.strict)


def _judged(judge: Judge, path: Path) -> Told | FaultError:
    """The verdict on ``path``, or how the checker itself failed over it."""
    try:
        return judge.check(path)
    except FaultError as error:
        return error


def _value(path: Path, told: Told | FaultError) -> dict[str, Any]:
    """A verdict as JSON values; in the place of one that is lacking, the fault of the checker."""
    if isinstance(told, FaultError):
        return {"result": safe(path.name), "accepted": False, "scored": False, "error": safe(told, _FAULT)}
    return told.as_dict()


def _unusable(path: Path) -> str | None:
    """Why ``path`` cannot be a result, where that is the caller's mistake."""
    if not path.exists():
        return f"nothing at {safe(path)}"
    if (
        not os.path.lexists(path / "run.jsonl")
        and path.is_dir()
        and any(inner.is_dir() for inner in path.iterdir())
    ):
        several = "give each of them, or a tree of submissions to `check-submissions`"
        return f"a folder of folders at {safe(path)}: {several}"
    return advice(path)


def exit_code(verdicts: Sequence[Verdict | Told], *, strict: bool = False) -> int:
    """The command's exit code for these verdicts."""
    if not all(verdict.accepted for verdict in verdicts):
        return REJECTED
    if strict and any(verdict.flags for verdict in verdicts):
        return FLAGGED
    return ACCEPTED


def print_verdict(verdict: Verdict | Told, file: TextIO | None = None, *, brief: bool = False) -> None:
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
    counts = f"{count(len(verdict.rejections), 'rejection')}, {count(len(verdict.flags), 'flag')}"
    print(f"{outcome}: {safe(verdict.name)} ({counts}; {safe(verdict.reached)})", file=out)
    if verdict.accepted and verdict.rules in ENDED:
        print(
            f"by rules {verdict.rules}, which take no new submission (SUBM-009); {NEWEST} are in use",
            file=out,
        )


def _lines(finding: Finding) -> str:
    return (
        f"{finding.severity}: {finding.rule} at {safe(finding.place)}\n"
        f"  expected {safe(finding.expected)}\n"
        f"  found    {safe(finding.actual)}\n"
        f"  mend     {finding.mend}"
    )
