"""Scaling sets among the submissions: package one with its runs, and check all.

A set is ``submissions/<submitter>/sets/<system>/<set id>/set.json``; its runs are ordinary submissions of the
same submitter and system. The file holds no measured number, so that nothing of it needs a signature: the
logs that it names by digest are signed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.checker.sandboxed import VerdictSummary
from suite.compare.comparable import COMPARE_TASKS
from suite.compare.scaling import CheckedSet, check_set
from suite.compare.scaling_set import FILE, is_set, run_folder
from suite.log.finding import Finding
from suite.log.model import Record
from suite.sandbox.sandbox import Sandbox
from suite.submissions import SETS, system
from suite.submissions.package import (
    Rejected,
    SubmissionError,
    finding,
    folders_in,
    load_accepted,
    location_in,
    package_result,
)
from suite.submissions.registry.withdrawals import withdrawal_of
from suite.submissions.signing.keys import PrivateKey


@dataclass(frozen=True, slots=True)
class SubmittedSet:
    """One set among the submissions. ``withdrawn``: a run of it is, so that the set does not count."""

    folder: Path
    findings: tuple[Finding, ...]
    withdrawn: bool = False


def records_of(folder: Path) -> dict[Path, Record]:
    """The records of the runs of the set in ``folder``, by folder, in the order of groups and arms.

    Raises :class:`Rejected` if the set is not accepted.
    """
    with Sandbox(COMPARE_TASKS) as sandbox:
        verdict, checked = check_set(sandbox, folder)
    if checked is None or not verdict.accepted:
        raise Rejected(list(verdict.findings))
    return {run: load_accepted(run) for run, _ in _runs(folder, checked)}


def package_set(
    folder: Path,
    described: Mapping[Path, tuple[Record, Mapping[str, Any]]],
    root: Path,
    key: PrivateKey | None = None,
) -> Path:
    """Copy the set in ``folder`` and its runs into the tree under ``root``; the folder of the packaged set.

    ``described`` are the runs of the set by folder, each with its record and its system description. Runs
    that are packaged already stay as they are, so that an interrupted command can be repeated. Raises
    :class:`SubmissionError` if the set is there, :class:`Rejected` if a copy does not pass, OSError.
    """
    first = next(iter(described.values()))[1]
    target = root / str(first["submitter"]) / SETS / system.slug(str(first["system_name"])) / folder.name
    if os.path.lexists(target):
        raise SubmissionError(f"{target} exists: a submission is never overwritten")
    for run, (record, description) in described.items():
        there = run_folder(target, record.subject.workload, record.run_id)
        if not there.is_dir() or load_accepted(there).digest != record.digest:
            package_result(run, record, description, root, key)
    target.mkdir(parents=True)
    try:
        shutil.copyfile(folder / FILE, target / FILE)
        with Sandbox(COMPARE_TASKS) as sandbox:
            verdict, _ = check_set(sandbox, target)
        if not verdict.accepted:
            raise Rejected(list(verdict.findings))
    except BaseException:
        shutil.rmtree(target)
        with contextlib.suppress(OSError):  # unless it has other sets: an empty folder breaks SUBM-001
            target.parent.rmdir()
        raise
    return target


def check_submitted_sets(
    root: Path, rejected: Mapping[Path, str]
) -> tuple[list[SubmittedSet], list[Finding]]:
    """Check all sets under ``root``; the second value are findings about other files and folders there.

    ``rejected`` are the submissions that do not count, by :func:`rejected_folders` of the tree.
    """
    stray: list[Finding] = []
    folders = list(_set_folders(root, stray))
    if not folders:
        return [], stray
    with Sandbox(COMPARE_TASKS) as sandbox:
        return [_submitted(*one) for one in check_sets(sandbox, folders, rejected)], stray


def check_sets(
    sandbox: Sandbox, folders: Iterable[Path], rejected: Mapping[Path, str]
) -> Iterator[tuple[Path, VerdictSummary, CheckedSet | None]]:
    """The folder of each set with what :func:`suite.compare.scaling.check_set` returns.

    A run belongs to the first accepted set that has it, so that no set counts twice under two names.
    """
    used: dict[Path, str] = {}
    for folder in folders:
        verdict, checked = check_set(sandbox, folder, rejected, used)
        if checked is not None and verdict.accepted:
            used |= {run: folder.name for run, _ in _runs(folder, checked)}
        yield folder, verdict, checked


def submitted_set_folders(root: Path) -> list[Path]:
    """The folders of the sets among the submissions under ``root``, in name order."""
    return sorted(path for path in root.glob(f"*/{SETS}/*/*") if is_set(path))


def has_withdrawn_run(folder: Path, checked: CheckedSet) -> bool:
    """Whether a run of the set in ``folder`` is withdrawn."""
    return any(withdrawal_of(run, digest) is not None for run, digest in _runs(folder, checked))


def _submitted(folder: Path, verdict: VerdictSummary, checked: CheckedSet | None) -> SubmittedSet:
    if checked is not None and has_withdrawn_run(folder, checked):
        return SubmittedSet(folder, (), withdrawn=True)
    return SubmittedSet(folder, verdict.findings)


def _runs(folder: Path, checked: CheckedSet) -> list[tuple[Path, str]]:
    """Folder and digest of each run of the set in ``folder``."""
    arms = [arm for group in checked.set.groups for arm in group.arms.values()]
    return [(run_folder(folder, checked.set.workload, arm.run_id), arm.sha256) for arm in arms]


def _set_folders(root: Path, stray: list[Finding]) -> Iterator[Path]:
    """The folders of sets; what else is in ``<submitter>/sets`` goes to ``stray``."""
    for sets in sorted(root.glob(f"*/{SETS}/")):
        if sets.is_symlink():  # check_tree reports it
            continue
        for machine in folders_in(sets, root, stray):
            if not any(machine.iterdir()):
                where = location_in(root, machine)
                stray.append(finding("SUBM-001", where, "a folder of sets", "an empty folder"))
            for folder in folders_in(machine, root, stray):
                names = sorted(path.name for path in folder.iterdir())
                if names == [FILE] and not (folder / FILE).is_symlink():
                    yield folder
                else:
                    found = ", ".join(names) or "nothing"
                    stray.append(
                        finding("SUBM-001", location_in(root, folder), f"a folder with {FILE} alone", found)
                    )
