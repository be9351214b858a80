"""``python -m suite check PATH…``: the verdict on results and scaling sets, for people or as JSON.

Exit codes: 0 accepted (flags are printed and counted), 1 rejected, 2 usage or internal error, 3 instead of
0 with ``--strict`` when there are flags. Without a path the newest finished result is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from suite.checker.sandboxed import CHECK_TASKS, VerdictSummary, check_in
from suite.cli.archives import refuse_result, result_problem
from suite.cli.guard import UsageError
from suite.compare.comparable import COMPARE_TASKS
from suite.compare.scaling import check_set
from suite.compare.scaling_set import is_set
from suite.log.files import LOG, PARTIAL
from suite.log.finding import Finding
from suite.log.safe import safe
from suite.log.units import count
from suite.sandbox.sandbox import Sandbox, TaskError
from suite.submissions.registry.withdrawals import withdrawal_of

if TYPE_CHECKING:
    from suite.checker import Verdict

ACCEPTED, REJECTED, INTERNAL, FLAGGED = 0, 1, 2, 3
_MAX_CHARACTERS = 1000  # of an error of the checker
_MAX_LINE = 1 << 20  # bytes of a log's first line
_ORDER = {"reject": 0, "flag": 1, "info": 2}


def main(args: argparse.Namespace) -> int:
    """Check every path in one sandbox; the worst outcome decides the exit code.

    An error of the checker for one path is reported, and the other paths still get their verdicts.
    """
    paths = args.result or [_newest(args.results_dir)]
    for path in paths:
        if not is_set(path) and (problem := result_problem(path)) is not None:
            raise UsageError(f"expected a result's folder, found {problem}")
    sets = any(is_set(path) for path in paths)
    with Sandbox(CHECK_TASKS, *([COMPARE_TASKS] if sets else [])) as sandbox:
        answers = [_checked(sandbox, path) for path in paths]
    if args.json:
        print(json.dumps(list(map(_value, paths, answers)), indent=2))
    for path, one in zip(paths, answers, strict=True):
        if isinstance(one, TaskError):
            print(f"check: {safe(path, _MAX_CHARACTERS)}: {safe(one, _MAX_CHARACTERS)}", file=sys.stderr)
        elif not args.json:
            print_verdict(one)
            if (withdrawal := _withdrawal(path, one)) is not None:
                print(f"{safe(path.name)}: {withdrawal}")
            if (path / "system.json").is_file():
                print("this checks the log alone: `make check-submissions` applies SUBM and REG rules too")
    verdicts = [one for one in answers if not isinstance(one, TaskError)]
    return INTERNAL if len(verdicts) < len(answers) else exit_code(verdicts, strict=args.strict)


def _newest(folder: Path) -> Path:
    """The finished result in ``folder`` that began last; UsageError without one."""
    print("this checks a result; `make test` runs the self-tests", file=sys.stderr)
    refuse_result(folder)
    found = [path for path in folder.glob("*Z-*") if path.is_dir() and path.suffix != ".debug"]
    found.sort(key=_began)
    finished = [path for path in found if path.suffix != PARTIAL]
    if found and found[-1].suffix == PARTIAL:
        text = "it runs still, or was interrupted; RESULT= with that folder says how far it came"
        print(f"newer, but incomplete: {found[-1]}: {text}", file=sys.stderr)
    if not finished:
        none = "finished result" if found else "result"
        raise UsageError(f"no {none} in {folder}/ yet: make run WORKLOAD=ncf FRAMEWORK=pytorch")
    print(f"newest result: {finished[-1]}", file=sys.stderr)
    return finished[-1]


def _began(folder: Path) -> tuple[str, str]:
    """When a run began by the first line of its log, and its name: names of one minute are in no order."""
    stated = folder.name.partition("Z")[0]
    try:
        with (folder / LOG).open("rb") as log:
            wall = str(json.loads(log.readline(_MAX_LINE))["wall"])
    except (OSError, ValueError, KeyError, TypeError):
        wall = f"{stated[:4]}-{stated[4:6]}-{stated[6:11]}:{stated[11:]}"  # by its name alone
    return wall, folder.name


def _checked(sandbox: Sandbox, path: Path) -> VerdictSummary | TaskError:
    """The verdict on ``path``, a result or a scaling set, or the error of the checker."""
    try:
        return check_set(sandbox, path)[0] if is_set(path) else check_in(sandbox, path)
    except TaskError as error:
        return error


def _value(path: Path, answer: VerdictSummary | TaskError) -> dict[str, Any]:
    """A verdict as JSON values, or the error of the checker."""
    if isinstance(answer, TaskError):
        return {
            "result": safe(path.name),
            "accepted": False,
            "scored": False,
            "error": safe(answer, _MAX_CHARACTERS),
        }
    return answer.as_dict() | {"withdrawal": _withdrawal(path, answer)}


def _withdrawal(path: Path, answer: VerdictSummary) -> str | None:
    """That the result was withdrawn, and why; None if it was not."""
    found = withdrawal_of(path, answer.value.get("sha256"))
    return None if found is None else safe(found, _MAX_CHARACTERS)


def exit_code(verdicts: Sequence[Verdict | VerdictSummary], *, strict: bool = False) -> int:
    """The command's exit code for these verdicts."""
    if not all(verdict.accepted for verdict in verdicts):
        return REJECTED
    if strict and any(verdict.flags for verdict in verdicts):
        return FLAGGED
    return ACCEPTED


def print_verdict(
    verdict: Verdict | VerdictSummary, file: TextIO | None = None, *, brief: bool = False
) -> None:
    """Print the verdict: findings by severity, then one line of summary.

    With ``brief``, findings of severity info are one line with their rule ids.
    """
    out = sys.stdout if file is None else file
    shown = [finding for finding in verdict.findings if not (brief and finding.severity == "info")]
    for finding in sorted(shown, key=lambda found: _ORDER[found.severity]):
        print(_lines(finding), file=out)
    if len(shown) < len(verdict.findings):
        names = sorted({finding.rule for finding in verdict.findings if finding.severity == "info"})
        print(f"information only: {', '.join(names)} (`python -m suite check` shows them)", file=out)
    outcome = "accepted" if verdict.accepted else "rejected"
    if verdict.accepted and not verdict.scored:
        outcome = "accepted, without a score"
    counts = f"{count(len(verdict.rejections), 'rejection')}, {count(len(verdict.flags), 'flag')}"
    print(f"{outcome}: {safe(verdict.name)} ({counts}; {safe(verdict.reached)})", file=out)


def _lines(finding: Finding) -> str:
    return (
        f"{finding.severity}: {finding.rule} at {safe(finding.location)}\n"
        f"  expected {safe(finding.expected)}\n"
        f"  found    {safe(finding.found)}\n"
        f"  fix     {finding.fix}"
    )
