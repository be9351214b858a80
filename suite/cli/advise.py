"""``python -m suite advise``: which machine is enough, from checked results and a model fitted to them.

Every accepted result of the workload in --results-dir is a cell; results that ran out of memory count too.
Exit codes: 0 the answer is printed, also where it is what to measure next; 2 there is no usable result, or
an option or the price file is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import UsageError
from suite.plan.errors import did_you_mean
from suite.plan.options import by_name

if TYPE_CHECKING:
    from suite.advice.cells import Group

_FILTERS = ("workload", "framework", "phase", "precision", "scale", "data")


def main(args: argparse.Namespace) -> int:
    """Read, fit and print; the exit code as above."""
    from suite.advice import text
    from suite.advice.advise import Advisor
    from suite.advice.goal import GoalError, read_goal, read_grid
    from suite.advice.prices import PriceError, read_prices
    from suite.advice.report import answer_of
    from suite.cli.terminal import text_width
    from suite.log.safe import safe
    from suite.report.compare_text import to_markdown, to_text

    try:
        goal = read_goal(args.goal) if args.goal else None
        grid = read_grid(args.grid or "")
        today = datetime.now(UTC).date()
        prices = read_prices(args.prices, today, args.price_age) if args.prices else None
    except (GoalError, PriceError) as error:
        raise UsageError(str(error)) from error
    if goal is not None and goal.name == "cost" and prices is None:
        raise UsageError("GOAL: a cost needs the prices of machines: PRICES=prices.csv")
    if args.epoch is not None and not 0 < args.epoch < math.inf:
        raise UsageError(f"EPOCH: expected a number above 0, found {args.epoch:g}")
    groups = _groups(args)
    advisors = [Advisor(group, groups) for group in groups]
    advised = [(advisor, advisor.rows(grid, prices)) for advisor in advisors]
    questions: dict[tuple[object, ...], list[int]] = {}
    for at, group in enumerate(groups):
        questions.setdefault(group.question, []).append(at)
    answers = []
    for indices in questions.values():
        some = [advised[at] for at in indices]
        answers.append((some, answer_of(some, goal, args.epoch, grid, prices)))
    if args.format == "json":
        print(json.dumps(text.to_json(advised, answers, goal, args.epoch, prices), indent=2, allow_nan=False))
        return 0
    folder = args.results_dir
    where = "" if folder == Path("results") else " " + shlex.quote(f"RESULTS_DIR={folder}")
    for some, answer in answers:
        parts = list(text.blocks(some, goal, args.epoch, prices))
        lines = text.answer_lines(answer, goal, args.epoch, prices)
        parts += text.sentences(lines)
        sys.stdout.write(to_markdown(parts) if args.format == "md" else to_text(parts, text_width()))
        for command in answer.next_commands:
            print("    " + safe(command + where, 500))
        print()
    return 0


def _groups(args: argparse.Namespace) -> list[Group]:
    """The groups of all usable results; UsageError without any."""
    from suite.advice.cells import read_groups

    if not args.results_dir.exists():
        raise UsageError(
            f"expected a folder of results, found nothing at {args.results_dir}: {_measure_one(args)}, or "
            "name another folder with RESULTS_DIR="
        )
    filters = {
        name: [value for value in (getattr(args, name) or "").split(",") if value] for name in _FILTERS
    }
    _refuse_unknown(filters)
    groups, unused = read_groups([args.results_dir], **filters)
    for why in unused:
        print(f"advise: not used: {why}", file=sys.stderr)
    if not groups:
        asked = ", ".join(f"{name} {' or '.join(values)}" for name, values in filters.items() if values)
        raise UsageError(
            f"expected at least one accepted result ({asked}) in {args.results_dir}, found none: "
            f"{_measure_one(args)}"
        )
    return groups


def _refuse_unknown(filters: Mapping[str, list[str]]) -> None:
    """UsageError for a value that no result has, and for a load, which has no model to be limited by."""
    known = by_name()
    for name, values in filters.items():
        choices = ("train", "infer") if name == "phase" else known[name].choices()
        for value in values:
            if name == "phase" and value in ("load", "load_infer"):
                raise UsageError(
                    f"PHASE: expected train or infer, found {value}, which runs no model; `make summary` "
                    "shows the throughput of loads"
                )
            if value not in choices:
                raise UsageError(
                    f"{name.upper()}: expected one of {', '.join(choices)}, found {value!r}"
                    f"{did_you_mean(value, choices)}"
                )


def _measure_one(args: argparse.Namespace) -> str:
    """The command that measures a result which passes the filters, in words."""
    given = {name: (getattr(args, name) or "").split(",")[0] for name in _FILTERS}
    given["framework"] = given["framework"] or "pytorch"
    words = [f"{name.upper()}={value}" for name, value in given.items() if value]
    return f"measure one with `{shlex.join(['make', 'run', *words])}`"
