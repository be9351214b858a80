"""``python -m suite ab 'words of A' -- 'words of B'``: two runs by turns on one machine, compared.

Exit codes: those of ``compare`` once both have run (0, 1, 5, 6), else that of ``run`` for the one that fails.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli import compare
from suite.plan.errors import BadConfiguration, Refusal, StorageProblem, Unsupported

if TYPE_CHECKING:
    from suite.harness.run import Outcome
    from suite.plan.plan import Plan
    from suite.plan.settings import Settings

SIDES = ("A", "B")
INTERRUPTED = 130
_USAGE = "python -m suite ab [OPTION …] [WORD=VALUE … --] 'WORD=VALUE …' -- 'WORD=VALUE …'"
_ABOUT = """\
Run A and B by turns on this machine (A B, B A, A B, …), each repeat a fresh process, and compare them. Words
are those of `suite run`; where there are three parts, the first goes for both sides:

  python -m suite ab workload=ncf framework=pytorch -- framework.threads=1 -- framework.threads=2

Both leave a result of their own. They are trials: two runs that share a machine's hours cannot both be
submitted (REG-008)."""
# A word ends at a blank that stands in no quotes; the quotes are Hydra's, and stay.
_WORD = re.compile(r"""(?:[^\s"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+""")


def main(argv: list[str]) -> int:
    """Run both sides and compare them; the exit code as above."""
    from suite.cli.run import refuse

    try:
        args, sides = parse(argv)
        return both(args, sides)
    except Refusal as error:
        return refuse(error)
    except compare.UsageError as error:
        print(f"ab: {error}", file=sys.stderr)
        return compare.INTERNAL


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[list[str]]]:
    """The options, and the words of A and of B. BadConfiguration; SystemExit as argparse does."""
    parser = argparse.ArgumentParser(
        prog="python -m suite ab", usage=_USAGE, description=_ABOUT, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    compare.add_common(parser)
    parts: list[list[str]] = [[]]
    for word in argv:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    args, parts[0] = parser.parse_known_args(parts[0])
    if len(parts) not in (2, 3):
        raise BadConfiguration(f"expected the words of A and of B with -- between them: {_USAGE}")
    words = [[word for text in part for word in split(text)] for part in parts]
    common, own = ([], words) if len(words) == 2 else (words[0], words[1:])
    for word in (*common, *own[0], *own[1]):
        if word.startswith("-"):
            raise BadConfiguration(f"expected a word of `suite run`, found the option {word}")
    return args, [[*common, *one] for one in own]


def split(text: str) -> list[str]:
    """The words in one argument of the command line, one or many. BadConfiguration for an open quote."""
    if _WORD.sub("", text).strip():
        raise BadConfiguration(f"expected quotes that are closed, found {text!r}")
    return _WORD.findall(text)


def both(args: argparse.Namespace, sides: Sequence[Sequence[str]]) -> int:
    """Plan both before anything is prepared, prepare both before anything is measured, run and compare."""
    from suite.cli import dry
    from suite.cli.run import NOTHING_MEASURED, complete, prepare_run
    from suite.cli.words import check_words
    from suite.plan.compose import composer
    from suite.plan.machine import look
    from suite.plan.resolve import resolve

    for words in sides:
        check_words(words)
    with composer() as compose:
        settings = [compose(words) for words in sides]
    for side, one in zip(SIDES, settings, strict=True):
        _refuse_unfit(side, one)
    machine = look()
    plans = [resolve(one, machine) for one in settings]
    _refuse_unlike(plans)
    if any(one.dry for one in settings):
        codes = []
        for side, plan in zip(SIDES, plans, strict=True):
            print(f"{side}:")
            codes.append(dry.show(plan))
        return max(codes)
    try:
        prepared = [prepare_run(plan, side) for side, plan in zip(SIDES, plans, strict=True)]
        plans = [complete(plan) for plan in prepared]
    except KeyboardInterrupt:
        print(f"error: {NOTHING_MEASURED}", file=sys.stderr)
        return INTERRUPTED
    outcomes = _measure(plans)
    return conclude(args, outcomes)


def _refuse_unfit(side: str, settings: Settings) -> None:
    """What cannot be run by turns is refused before anything is prepared."""
    if settings.slurm is not None:
        raise Unsupported(f"{side}: launcher: ab runs here; make the ab itself a job of one node")
    if settings.phase == "preprocess":
        raise BadConfiguration(
            f"{side}: phase: conversions are run one by one, and compared by `suite compare`"
        )
    if settings.purpose == "submission":
        raise BadConfiguration(
            f"{side}: purpose: expected trial: two runs that share a machine's hours cannot both be submitted"
        )


def _refuse_unlike(plans: Sequence[Plan]) -> None:
    """BadConfiguration where the results could not be compared: better now than after measuring."""
    a, b = (
        {"workload": plan.key.workload, "phase": plan.key.phase, "mode": plan.settings.mode} for plan in plans
    )
    unlike = [f"{name}: {a[name]} and {b[name]}" for name in a if a[name] != b[name]]
    if unlike:
        raise BadConfiguration(f"not comparable: A and B differ in {'; '.join(unlike)}")


def _measure(plans: Sequence[Plan]) -> list[Outcome]:
    """Both runs by turns. StorageProblem where a log or the ledger of attempts cannot be written."""
    from suite.cli.run import begun
    from suite.datasets.errors import StorageError
    from suite.harness.run import Run, execute_in_turns

    try:
        runs = [Run(*begun(plan), name=side) for side, plan in zip(SIDES, plans, strict=True)]
        return execute_in_turns(runs)
    except OSError as error:
        raise StorageProblem(error.strerror or str(error)) from error
    except StorageError as error:
        raise StorageProblem(str(error)) from error


def conclude(args: argparse.Namespace, outcomes: Sequence[Outcome]) -> int:
    """Compare what was measured, or say which side failed and where its record lies."""
    for side, outcome in zip(SIDES, outcomes, strict=True):
        print(f"{side}: {_shown(outcome.folder)}", file=sys.stderr)
    failed = [(side, one) for side, one in zip(SIDES, outcomes, strict=True) if one.exit_code]
    if not failed:
        return compare.with_each_other(args, [outcome.folder for outcome in outcomes])
    for side, outcome in failed:
        print(f"error: {side}: {outcome.message}", file=sys.stderr)
    compare.junit_of_failures(args, [(side, outcome.message) for side, outcome in failed])
    # The one that failed by itself: the other was interrupted because of it.
    return next((one.exit_code for _, one in failed if one.exit_code != INTERRUPTED), INTERRUPTED)


def _shown(folder: Path) -> Path:
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
