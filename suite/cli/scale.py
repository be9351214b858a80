"""``python -m suite scale``: how throughput grows with the number of devices, and where the rest is lost.

For each number N of devices above 1 a group of runs is measured interleaved: one device with its neighbours
idle, N independent replicas and, in training, N ranks that exchange gradients. Weak scaling (default): BATCH
is per device; strong scaling: BATCH is the global batch. Every run leaves an ordinary result; the set in
results/sets/<id> names them. The same command continues an interrupted set: groups that are complete and
accepted are not measured again. Progress and verdict go to stderr, the table to stdout. Exit codes: 0 the set
is accepted · 1 it is rejected · that of `run` for a run that failed · 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import INTERRUPTED, progress, relative, storage_problems
from suite.cli.plot import check_name, encoded
from suite.log.units import count, span
from suite.plan.errors import BadConfiguration

if TYPE_CHECKING:
    from suite.compare.scaling_set import Group
    from suite.harness.run import Outcome
    from suite.plan.plan import Plan
    from suite.sweep.journal import JournalLine
    from suite.sweep.scaling import PlannedSet

REJECTED, OUT_OF_MEMORY, TIMED_OUT = 1, 21, 23


def main(args: argparse.Namespace) -> int:
    """Plan, measure what is missing, check and show; the exit code as above."""
    from suite.cli.matrix import split_overrides
    from suite.cli.overrides import check_overrides
    from suite.plan.code import code_digest
    from suite.sweep.scaling import plan_set

    if args.plot is not None:
        check_name(args.plot, "--plot", may_exist=True)
    paths, options = split_overrides(args.overrides, args.results_dir)
    options = [f"workload={args.workload}", f"framework={args.framework}", *options]
    check_overrides(options, verb="scale")
    cause = args.cause or None
    digest = code_digest()
    planned = plan_set([*options, *paths], _counts(args.devices), args.scaling, cause, digest)
    if args.dry:
        return _show_plan(planned)
    code = _measure_missing(planned, options, digest)
    if code == INTERRUPTED:
        progress("interrupted: the same command continues with the next group")
        return code
    shown = _show(planned.folder, args.format, args.plot)
    return code or shown


def _counts(text: str) -> list[int]:
    """The numbers of devices in ``text``, such as 1,2,4."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 4096 for part in parts):
        raise BadConfiguration(f"devices: expected numbers such as 1,2,4, found {text!r}")
    return [int(part) for part in parts]


def _accepted(planned: PlannedSet) -> frozenset[int]:
    """The numbers of devices whose groups are complete and accepted."""
    from suite.compare.comparable import COMPARE_TASKS
    from suite.compare.scaling import check_set
    from suite.compare.scaling_set import is_set
    from suite.sandbox.sandbox import Sandbox

    if not is_set(planned.folder):
        return frozenset()
    with Sandbox(COMPARE_TASKS) as sandbox:
        _, checked = check_set(sandbox, planned.folder)
    return checked.accepted if checked is not None else frozenset()


def _announcement(planned: PlannedSet, left: Sequence[int]) -> str:
    total, seconds = len(planned.content.devices), [planned.seconds(devices) for devices in left]
    known = [one for one in seconds if one is not None]
    line = f"{count(total, 'group')}: {total - len(left)} done, {len(left)} to run"
    if known:
        line += f"; about {span(sum(known))} for {len(known)} of them, as earlier results took"
    if len(known) < len(left):
        line += f"; no estimate for {len(left) - len(known)}: not all of their runs have an earlier result"
    return line


def _show_plan(planned: PlannedSet) -> int:
    """Print groups, times and what the rules refuse; 0 or the exit code of the first refusal."""
    from suite.cli import dry
    from suite.plan.errors import Refusal

    done, code = _accepted(planned), 0
    progress(_announcement(planned, [devices for devices in planned.plans if devices not in done]))
    for devices, plans in planned.plans.items():
        seconds = planned.seconds(devices)
        state = "done" if devices in done else "to run"
        print(f"{devices} devices: {state}, {'time not known' if seconds is None else span(seconds)}")
        for name, plan in plans.items():
            print(f"  {name:<12} {dry.description(plan)}")
            try:
                dry.header_of(plan)
            except Refusal as error:
                print(f"  {'refused':<12} {error}")
                code = code or error.code
    return code


def _measure_missing(planned: PlannedSet, options: Sequence[str], code: str) -> int:
    """Measure the groups that are not complete and accepted, and keep the set after each.

    Returns 0, or the exit code of the first run that failed. ``options`` and ``code`` are for the journal.
    """
    from suite.sweep import journal
    from suite.sweep.execution import Task, run_in_order
    from suite.sweep.scaling import stored_set, write_set

    results, failed = planned.folder.parent.parent, 0
    with storage_problems():
        results.mkdir(parents=True, exist_ok=True)
    with storage_problems(), journal.locked(results) as lock:
        content = stored_set(planned)
        write_set(planned.folder, content)  # a newly declared cause may be all that a group lacked
        done = _accepted(planned)
        left = [devices for devices in planned.plans if devices not in done]
        progress(_announcement(planned, left))

        def measure(devices: int) -> journal.JournalLine | None:
            nonlocal content, failed
            outcomes = _measure(planned.plans[devices], devices)
            codes = [one.exit_code for one in outcomes.values() if one.exit_code]
            typed = [one for one in codes if one != INTERRUPTED]
            if codes and not typed:
                return None
            failed = failed or next(iter(typed), 0)
            group = _group(devices, outcomes)
            content = content.with_group(group)
            write_set(planned.folder, content)
            return _line(planned, group, [*options, f"devices={devices}"], code)

        tasks = [
            Task(
                f"{devices} devices: {', '.join(content.arms)}, interleaved",
                planned.seconds(devices),
                partial(measure, devices),
            )
            for devices in left
        ]
        return INTERRUPTED if run_in_order(tasks, lock) else failed


def _line(planned: PlannedSet, group: Group, options: Sequence[str], code: str) -> JournalLine:
    """The end of a group for the journal."""
    from suite.sweep.journal import JournalLine

    failure, name = group.failure, planned.folder.name
    if failure is None:
        return JournalLine(tuple(options), code, "ok", 0, "", sweep=name)
    outcome = {OUT_OF_MEMORY: "oom", TIMED_OUT: "timeout"}.get(failure.exit_code, "error")
    return JournalLine(tuple(options), code, outcome, failure.exit_code, failure.message, sweep=name)


def _measure(plans: Mapping[str, Plan], devices: int) -> dict[str, Outcome]:
    """Run the arms of a group interleaved; the outcome of each by its name."""
    from suite.cli.run import NOTHING_MEASURED, prepare_resources, prepare_with_header, with_counted_attempt
    from suite.compare.scaling_set import SINGLE
    from suite.harness.run import NamedRun, execute_interleaved

    try:
        resources = {name: prepare_resources(plan, name) for name, plan in plans.items()}
        runs = {name: prepare_with_header(plan, resources[name]) for name, plan in plans.items()}
    except KeyboardInterrupt:
        progress(f"error: {NOTHING_MEASURED}")
        raise
    named = [
        NamedRun(with_counted_attempt(run), name if name == SINGLE else f"{devices} {name}")
        for name, run in runs.items()
    ]
    return dict(zip(runs, execute_interleaved(named), strict=True))


def _group(devices: int, outcomes: Mapping[str, Outcome]) -> Group:
    """The group of completed runs, or the failure of the run that ended it."""
    from suite.compare.scaling_set import Arm, Failure, Group
    from suite.log.canonical import sha256_hex
    from suite.log.files import LOG
    from suite.sweep.scaling import plain_message

    for name, one in outcomes.items():
        if one.exit_code not in (0, INTERRUPTED):  # the others were interrupted because of it
            progress(f"error: {name}: {one.message}")
            return Group(devices, {}, Failure(one.exit_code, plain_message(f"{name}: {one.message}")))
    arms = {
        name: Arm(one.folder.name, sha256_hex((one.folder / LOG).read_bytes()))
        for name, one in outcomes.items()
    }
    return Group(devices, arms)


def _show(folder: Path, output_format: str, plot: Path | None) -> int:
    """Check the set, print its table and verdict, and draw it; 0 if it is accepted."""
    from suite.cli.check import print_verdict
    from suite.cli.terminal import text_width
    from suite.compare.comparable import COMPARE_TASKS
    from suite.compare.scaling import check_set
    from suite.report import scaling_table
    from suite.sandbox.sandbox import Sandbox

    with Sandbox(COMPARE_TASKS) as sandbox:
        verdict, checked = check_set(sandbox, folder)
    if checked is not None:
        text = (
            scaling_table.to_text(checked, text_width())
            if output_format == "text"
            else scaling_table.WRITERS[output_format](checked)
        )
        print(text, end="")
        if plot is not None and checked.figures:
            from suite.figures.scaling import scaling

            with storage_problems():
                plot.write_bytes(encoded(scaling(checked), plot))
            progress(f"plot: {plot}")
    print_verdict(verdict, sys.stderr)
    progress(f"set: {relative(folder)}")
    return 0 if verdict.accepted else REJECTED
