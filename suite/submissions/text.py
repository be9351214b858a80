"""The findings about the tree of submissions, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from suite.log.finding import Finding
from suite.log.safe import folded, safe
from suite.log.units import count
from suite.submissions.package import CheckedSubmission

_LONGEST = 1500  # characters of a finding, a withdrawn result with its reason, or a fault


def show_all(
    root: Path,
    entries: Sequence[CheckedSubmission],
    about_tree: Sequence[Finding],
    *,
    strict: bool = False,
    width: int | None = None,
) -> int:
    """Print what :func:`suite.submissions.package.check_tree` found, in ``width`` columns; the exit code.

    0, 1 or (with ``strict``) 3 as in ``suite check``; 2 where the checker itself failed over a submission,
    which then has no verdict.
    """
    findings = [
        (safe(entry.folder.relative_to(root).as_posix(), _LONGEST), found)
        for entry in entries
        for found in entry.findings
    ]
    findings += map(_with_folder, about_tree)
    print_findings(findings, width)
    withdrawn = [entry for entry in entries if entry.withdrawal is not None]
    for entry in withdrawn:
        _print(f"{entry.folder.relative_to(root).as_posix()}: {entry.withdrawal}", width)
    faults = [entry.fault for entry in entries if entry.fault is not None]
    for fault in faults:
        _print(f"no verdict: {fault}", width)
    every = [found for _, found in findings]
    rejects = sum(found.severity == "reject" for found in every)
    flags = sum(found.severity == "flag" for found in every)
    counts = f"{count(len(entries), 'submitted result')} under {root}: "
    counts += f"{count(rejects, 'rejecting finding')}, {count(flags, 'flag')}"
    _print(counts + (f", {len(withdrawn)} withdrawn" if withdrawn else ""), width)
    if informing := Counter(found.rule for found in every if found.severity == "info"):
        counts = ", ".join(f"{number} of {rule}" for rule, number in sorted(informing.items()))
        _print(f"information: {counts}", width)
    levels = Counter(entry.assurance.level for entry in entries if entry.assurance is not None)
    print(
        "assurance: " + (", ".join(f"{count} at {name}" for name, count in sorted(levels.items())) or "none")
    )
    if faults:
        print(f"without a verdict because of a fault of the checker: {len(faults)}")
        return 2
    if rejects:
        return 1
    return 3 if strict and flags else 0


def print_findings(findings: Iterable[tuple[str, Finding]], width: int | None) -> None:
    """Print those that are not for information only, each under its folder, in ``width`` columns."""
    shown = sorted((one for one in findings if one[1].severity != "info"), key=lambda one: one[0])
    for folder, group in groupby(shown, key=lambda one: one[0]):
        if folder:
            print(f"{folder}:")
        for _, found in group:
            _print(("  " if folder else "") + finding_line(found), width)


def _print(text: str, width: int | None) -> None:
    print(*folded(text, width, _LONGEST), sep="\n")


def _with_folder(found: Finding) -> tuple[str, Finding]:
    """The path that the location of a finding about the tree begins with, and the finding without it."""
    folder, _, within = found.location.partition(", ")
    return (safe(folder, _LONGEST), replace(found, location=within)) if within else ("", found)


def finding_line(found: Finding) -> str:
    """One finding as a line of text, safe to print."""
    return (
        f"{found.rule} {found.severity} {safe(found.location, 240)}: expected {safe(found.expected)}, "
        f"found {safe(found.found)}; {safe(found.fix, 240)}"
    )
