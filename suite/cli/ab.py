"""``python -m suite ab 'options of A' -- 'options of B'``: two runs interleaved on one machine, compared.

A and B are run interleaved (A B, B A, A B, …), each repeat a fresh process. Options are those of ``suite
run``; with three parts, the first applies to both sides:

  python -m suite ab workload=ncf framework=pytorch -- framework.threads=1 -- framework.threads=2

Both leave a result. They are trials, no attempts at a closed result. Exit codes: those of ``compare`` if both
runs complete (0, 1, 5, 6), else that of ``run`` for the failed one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.cli import compare
from suite.cli.arguments import COMPARISON
from suite.cli.guard import INTERRUPTED, relative, storage_problems
from suite.cli.parsing import add
from suite.plan.errors import BadConfiguration, Unsupported

if TYPE_CHECKING:
    from suite.harness.run import Outcome
    from suite.plan.plan import Plan
    from suite.plan.prepared import PreparedRun
    from suite.plan.settings import Settings

SIDES = ("A", "B")
_USAGE = "python -m suite ab [--FLAG …] [OPTION=VALUE … --] 'OPTION=VALUE …' -- 'OPTION=VALUE …'"
# An option ends at a blank outside of quotes; the quotes are Hydra's and are kept.
_OPTION = re.compile(r"""(?:[^\s"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+""")


def main(argv: list[str]) -> int:
    """Run both sides and compare them; the exit code as above."""
    args, sides = parse(argv)
    return run_both(args, sides)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[list[str]]]:
    """The flags, and the options of A and of B. BadConfiguration; SystemExit as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m suite ab", usage=_USAGE, allow_abbrev=False)
    for option in COMPARISON:
        add(parser, option)
    parts: list[list[str]] = [[]]
    for argument in argv:
        if argument == "--":
            parts.append([])
        else:
            parts[-1].append(argument)
    args, parts[0] = parser.parse_known_args(parts[0])
    if len(parts) not in (2, 3):
        raise BadConfiguration(f"expected the options of A and of B with -- between them: {_USAGE}")
    options = [[option for text in part for option in split(text)] for part in parts]
    common, sides = ([], options) if len(options) == 2 else (options[0], options[1:])
    for one in (*common, *sides[0], *sides[1]):
        if one.startswith("-"):
            raise BadConfiguration(
                f"expected an option of `suite run` such as batch=256, found the flag {one}"
            )
    return args, [[*common, *side] for side in sides]


def split(text: str) -> list[str]:
    """The options in one argument of the command line. BadConfiguration for an open quote."""
    if _OPTION.sub("", text).strip():
        raise BadConfiguration(f"expected closed quotes, found {text!r}")
    return _OPTION.findall(text)


def run_both(args: argparse.Namespace, sides: Sequence[Sequence[str]]) -> int:
    """Plan both runs, then prepare both, then execute them interleaved and compare."""
    from suite.cli import dry
    from suite.cli.overrides import check_overrides
    from suite.cli.run import NOTHING_MEASURED, prepare_resources, prepare_with_header
    from suite.plan.compose import composer
    from suite.plan.machine import detect_machine
    from suite.plan.resolve import resolve

    for options in sides:
        check_overrides(options, verb="ab")
    with composer() as compose:
        settings = [compose(options) for options in sides]
    for side, one in zip(SIDES, settings, strict=True):
        _refuse_unfit(side, one)
    machine = detect_machine()
    plans = [resolve(one, machine) for one in settings]
    _refuse_unlike(plans)
    if any(one.dry for one in settings):
        codes = []
        for side, plan in zip(SIDES, plans, strict=True):
            print(f"{side}:")
            codes.append(dry.show(plan))
        return max(codes)
    try:
        resources = [prepare_resources(plan, side) for side, plan in zip(SIDES, plans, strict=True)]
        runs = [prepare_with_header(plan, there) for plan, there in zip(plans, resources, strict=True)]
    except KeyboardInterrupt:
        print(f"error: {NOTHING_MEASURED}", file=sys.stderr)
        return INTERRUPTED
    outcomes = _measure(runs)
    return compare_outcomes(args, outcomes)


def _refuse_unfit(side: str, settings: Settings) -> None:
    """Refuse settings that cannot be run interleaved."""
    if settings.launcher != "local":
        raise Unsupported(
            f"{side}: launcher: expected local, found {settings.launcher}; submit the whole ab as a job of "
            "one node"
        )
    if settings.nodes > 1:
        raise Unsupported(f"{side}: nodes: expected 1, found {settings.nodes}; compare two results instead")
    if settings.purpose == "submission":
        raise BadConfiguration(
            f"{side}: purpose: expected trial: the runs of a comparison are no attempts at a closed result"
        )


def _refuse_unlike(plans: Sequence[Plan]) -> None:
    """BadConfiguration if the results could not be compared."""
    from suite.compare.compare import SAME_WORK

    a, b = (
        {
            "workload": plan.key.workload,
            "phase": plan.settings.phase,
            "mode": plan.settings.mode,
            **{name: getattr(plan.key, name) for name in SAME_WORK},
        }
        for plan in plans
    )
    unlike = [f"{name}: {a[name]} and {b[name]}" for name in a if a[name] != b[name]]
    if unlike:
        raise BadConfiguration(f"not comparable: A and B differ in {'; '.join(unlike)}")
    if len(caches := {plan.key.cache for plan in plans}) > 1:
        raise BadConfiguration(
            f"cache: expected the same on both sides, found {' and '.join(sorted(caches))}: interleaved, the "
            "cold side would evict the files of the warm one; run each alone, then `make compare`"
        )


def _measure(prepared: Sequence[PreparedRun]) -> list[Outcome]:
    """Execute both runs interleaved. StorageProblem if a log or the ledger of attempts cannot be written."""
    from suite.cli.run import with_counted_attempt
    from suite.harness.run import NamedRun, execute_interleaved

    with storage_problems():
        runs = [NamedRun(with_counted_attempt(run), side) for side, run in zip(SIDES, prepared, strict=True)]
        return execute_interleaved(runs)


def compare_outcomes(args: argparse.Namespace, outcomes: Sequence[Outcome]) -> int:
    """Compare the results, or report which side failed and where its log is."""
    for side, outcome in zip(SIDES, outcomes, strict=True):
        print(f"{side}: {relative(outcome.folder)}", file=sys.stderr)
    failed = [(side, one) for side, one in zip(SIDES, outcomes, strict=True) if one.exit_code]
    if not failed:
        return compare.with_each_other(args, [outcome.folder for outcome in outcomes])
    for side, outcome in failed:
        print(f"error: {side}: {outcome.message}", file=sys.stderr)
    compare.junit_of_failures(args, [(side, outcome.message) for side, outcome in failed])
    # The other run was interrupted because of the failure.
    return next((one.exit_code for _, one in failed if one.exit_code != INTERRUPTED), INTERRUPTED)
