"""The findings about the tree of submissions, as lines of text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from suite.log.finding import Finding
from suite.log.safe import safe
from suite.submissions import package as submission

_LONGEST = 1000  # characters of a withdrawn result with its reason


def check_all(root: Path, *, strict: bool = False) -> int:
    """Check all submissions under ``root``, print the findings, and return the exit code.

    0, 1 or (with ``strict``) 3 as in ``suite check``; 2 where the checker itself failed over a submission,
    which then has no verdict.
    """
    entries, about_tree = submission.check_tree(root)
    findings = [(entry.folder, found) for entry in entries for found in entry.findings]
    for folder, found in findings:
        if found.severity != "info":
            print(finding_line(found, safe(folder.relative_to(root).as_posix())))
    for found in about_tree:
        if found.severity != "info":
            print(finding_line(found, ""))
    withdrawn = [entry for entry in entries if entry.withdrawal is not None]
    for entry in withdrawn:
        print(safe(f"{entry.folder.relative_to(root).as_posix()}: {entry.withdrawal}", _LONGEST))
    faults = [entry.fault for entry in entries if entry.fault is not None]
    for fault in faults:
        print(f"no verdict: {fault}")
    every = [found for _, found in findings] + about_tree
    rejects = sum(found.severity == "reject" for found in every)
    flags = sum(found.severity == "flag" for found in every)
    print(
        f"{len(entries)} submitted results under {root}: {rejects} rejecting findings, {flags} flags"
        + (f", {len(withdrawn)} withdrawn" if withdrawn else "")
    )
    if informing := Counter(found.rule for found in every if found.severity == "info"):
        print("information: " + ", ".join(f"{count} of {rule}" for rule, count in sorted(informing.items())))
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


def finding_line(found: Finding, folder: str) -> str:
    """One finding as a line of text, safe to print."""
    where = f"{folder}: {found.location}" if folder else found.location
    return (
        f"{found.rule} {found.severity} {safe(where, 240)}: expected {safe(found.expected)}, "
        f"found {safe(found.found)}; {safe(found.fix, 240)}"
    )
