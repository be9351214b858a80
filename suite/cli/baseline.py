"""``python -m suite baseline``: measure the machine itself, write a log, and compare it with other baselines.

A baseline has three groups: cpu (GEMM, memory, page cache, JPEG), gpu (GEMM per precision, memory, links,
launches, sums over GPUs) and disk (fio on files in the folder --disk). Logs are kept in <baselines>/logs;
<baselines>/<kind of machine>/<digest>.json is the file to share. If a series is slow, all is measured again,
as a baseline of its own.

Exit codes: 0 measured, and no series is slow, or none in both measurements; 1 a series is slow in both (with
--log: in that log); 2 usage or internal error; 13 PyTorch cannot be installed, or nothing could be measured;
15 the files cannot be written; 20 a measurement failed, or computed a wrong result.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import sys
from pathlib import Path

from suite.baseline.run import GROUPS, GroupFailed, measure
from suite.cli.guard import MISSING, UsageError, progress
from suite.compare.baseline_verdict import SLOW, UNKNOWN, verdicts
from suite.environments import environments
from suite.harness.log import LogError
from suite.metrics.baseline import Baseline, BaselineProblem, read_log, read_shared
from suite.plan.errors import StorageProblem
from suite.plan.machine import detect_machine
from suite.report.baseline_text import text

FAILED = 20
_MOST_FILES = 10_000  # of one kind of machine
_NARROW = 60


def main(args: argparse.Namespace) -> int:
    """Measure, write, compare and print; see the module for the exit codes."""
    try:
        groups = () if args.log else _groups(args)
        folder = args.log or _measured(args, groups)
        baseline = _read(folder)
        if not baseline.series:
            print(text(baseline, (), _width()))
            print(f"baseline: nothing was measured; the reasons are above and in {folder}", file=sys.stderr)
            return MISSING
        known = _known(args.baselines / baseline.cohort.folder)
        states = _compare(baseline, known, folder, args)
        slow = {one for one, state in states.items() if state == SLOW}
        if slow and args.log is None:
            progress(f"measuring again: {', '.join(sorted({name for _, name in slow}))} slow")
            folder = _measured(args, groups)  # all of it: a run cites the newest baseline
            print()
            again = _compare(_read(folder), known, folder, args)
            slow = {one for one in slow if again.get(one, UNKNOWN) in (SLOW, UNKNOWN)}
            names = sorted({name for _, name in slow})
            print(f"\nslow in both measurements: {', '.join(names) or 'no series'}")
    except GroupFailed as problem:
        print(f"baseline: {problem}", file=sys.stderr)
        return FAILED
    except LogError as problem:
        raise StorageProblem(
            f"{args.baselines}: {os.strerror(problem.errno or errno.EIO)}; name another folder with "
            "--baselines (BASELINES=DIR with make)"
        ) from problem
    return 1 if slow else 0


def _read(folder: Path) -> Baseline:
    """The baseline of a log; UsageError if it is none."""
    try:
        return read_log(folder)
    except BaselineProblem as problem:
        raise UsageError(f"{folder} is no valid baseline: {problem}") from None


def _compare(
    baseline: Baseline, known: list[Baseline], folder: Path, args: argparse.Namespace
) -> dict[tuple[str, str], str]:
    """Print a baseline and its verdicts, and keep a new one to share; the states by comparison and series."""
    found = verdicts(baseline, known)
    print(text(baseline, found, _width()))
    print(f"\nlog: {folder}")
    if args.log is None:
        shared = args.baselines / baseline.cohort.folder / f"{baseline.digest}.json"
        shared.parent.mkdir(parents=True, exist_ok=True)
        shared.write_bytes(baseline.shared())
        print(f"to share: {shared}")
    return {(verdict.against, one.name): one.state for verdict in found for one in verdict.series}


def _width() -> int:
    return max(_NARROW, shutil.get_terminal_size((100, 24)).columns)


def _groups(args: argparse.Namespace) -> tuple[str, ...]:
    """The groups to measure; UsageError if the group disk and its folder do not go together."""
    groups = tuple(name for name in GROUPS if args.group in ("all", name))
    if args.disk is None:
        if args.group == "disk":
            raise UsageError("the group disk needs a folder on the disk: add --disk (DISK=/folder with make)")
        return tuple(name for name in groups if name != "disk")
    if "disk" not in groups:
        raise UsageError(f"--disk is for the group disk, but --group is {args.group}: leave one of them out")
    if not args.disk.is_dir():
        raise UsageError(f"--disk: expected an existing folder, found {args.disk}")
    return groups


def _measured(args: argparse.Namespace, groups: tuple[str, ...]) -> Path:
    """The folder of the new log; GroupFailed."""
    machine = detect_machine()
    interpreters: dict[str, Path] = {}
    for group in groups:
        if group == "cpu" or (group == "gpu" and machine.gpus):
            interpreters[group] = environments.ensure(
                "pytorch", "cuda" if machine.gpus else "cpu", allow_large=args.fetch, progress=progress
            )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends programs and removes files too
    try:
        return measure(
            groups, interpreters, folder=args.baselines / "logs", disk_folder=args.disk or Path(),
            quick=args.quick, gpus=len(machine.gpus), report=progress,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, before)


def _known(folder: Path) -> list[Baseline]:
    """The baselines of one kind of machine; a file that is none is named and left out."""
    found = []
    for path in sorted(folder.glob("*.json"))[:_MOST_FILES]:
        try:
            found.append(read_shared(path))
        except BaselineProblem as problem:
            progress(f"warning: left out: {problem}")
    return found
