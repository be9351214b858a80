"""Submissions: package a result, and check all packaged results.

The layout (submissions/README.md explains it)::

    submissions/<submitter>/<results|practice>/<system>/<workload>/<run id>/{run.jsonl, system.json, …}
    submissions/<submitter>/sets/<system>/<set id>/set.json

It is MLPerf's (``<org>/results/<system>/<benchmark>/``) with a folder per run; practice has a separate tree.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.checker import Verdict, check_result
from suite.checker.sandboxed import limit_finding
from suite.log.files import BASELINE, folder_of, read_in
from suite.log.finding import Finding, RecordError
from suite.log.model import Record
from suite.log.safe import safe
from suite.metrics.cited_baseline import file_difference
from suite.metrics.machine import machine_facts
from suite.sandbox.pool import in_sandboxes
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError
from suite.submissions import PRACTICE, RESULTS, SETS, TREES, attestation, system
from suite.submissions.plausible import implausible
from suite.submissions.registry import Registry, read_registry
from suite.submissions.registry.assurance import Assurance
from suite.submissions.registry.comparison import tree_breaches
from suite.submissions.registry.model import Withdrawal
from suite.submissions.registry.traces import Trace, trace_of
from suite.submissions.registry.waivers import apply_waivers
from suite.submissions.registry.withdrawals import without_result
from suite.submissions.rule_table import finding, finding_of, rules
from suite.submissions.signing.keys import PrivateKey
from suite.submissions.signing.statement import ATTESTATION
from suite.submissions.tree_findings import SYSTEM, duplicates, hardware_differences, location_in

__all__ = [
    "CheckedSubmission",
    "Rejected",
    "SubmissionError",
    "check_entry",
    "check_tree",
    "finding",
    "folders_in",
    "hardware_differences",
    "load_accepted",
    "location_in",
    "package_result",
    "rules",
]  # fmt: skip

SUBMISSION_TASKS = "suite.submissions.tasks"
# Beside the submitters' folders; other code reads and checks the registry.
_NOT_SUBMITTERS = ("README.md", "registry")
MOST_CURVES = 100_000  # 20,000 results of one device: two gigabytes of memory when they are compared
_MAX_FAULT = 1000  # characters shown of a fault of the checker


class SubmissionError(Exception):
    """A result cannot be packaged; the message states what to fix."""


class TooManySubmissions(SubmissionError):
    """There are more submissions than can be compared with each other."""


class Rejected(SubmissionError):
    """The checker rejects the result; ``findings`` has all its findings."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__("the checker rejects this result; a rejected result is not packaged")


@dataclass(frozen=True, slots=True)
class CheckedSubmission:
    """One packaged result after checking."""

    folder: Path
    findings: tuple[Finding, ...]
    digest: str | None  # of run.jsonl
    run_id: str | None
    system: dict[str, Any] | None
    assurance: Assurance | None = None  # None where the result is rejected or withdrawn
    trace: Trace | None = None
    withdrawal: Withdrawal | None = None
    fault: str | None = None  # how the checker itself failed; then there is no verdict

    @property
    def rejected(self) -> bool:
        """Whether any finding rejects."""
        return any(found.severity == "reject" for found in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The submission as JSON values, without its folder."""
        return {
            "findings": [asdict(one) for one in self.findings],
            "digest": self.digest,
            "run_id": self.run_id,
            "system": self.system,
            "assurance": None if self.assurance is None else asdict(self.assurance),
            "trace": None if self.trace is None else self.trace.as_dict(),
            "withdrawal": None if self.withdrawal is None else asdict(self.withdrawal),
        }

    @classmethod
    def of_dict(cls, folder: Path, value: Mapping[str, Any]) -> CheckedSubmission:
        """The submission from the JSON values of :meth:`as_dict`."""
        assurance, trace, withdrawal = value["assurance"], value["trace"], value["withdrawal"]
        return cls(
            folder,
            tuple(Finding(**one) for one in value["findings"]),
            value["digest"],
            value["run_id"],
            value["system"],
            None if assurance is None else Assurance(**assurance | {"signers": tuple(assurance["signers"])}),
            None if trace is None else Trace.of_dict(trace),
            None if withdrawal is None else Withdrawal(**withdrawal),
        )


def tree_of(division: str) -> str:
    """The name of the folder for results of ``division``."""
    return PRACTICE if division == "practice" else RESULTS


def load_accepted(result: Path) -> Record:
    """The record of an accepted, finished result.

    Raises :class:`Rejected` with the findings, or :class:`SubmissionError` for a run without a score.
    """
    if not result.exists():
        raise SubmissionError(f"--result: no such folder: {result}")
    verdict = check_result(result)
    if verdict.record is None or not verdict.accepted:
        raise Rejected(list(verdict.findings))
    if not verdict.scored:
        outcome = (verdict.record.outcome or "incomplete").replace("_", " ")
        raise SubmissionError(
            f"{result}: the run ended {outcome}; only a completed run has a score to submit"
        )
    return verdict.record


def package_result(
    result: Path, record: Record, description: Mapping[str, Any], root: Path, key: PrivateKey | None = None
) -> CheckedSubmission:
    """Copy ``result`` with its description into the tree under ``root``, signed with ``key`` if given.

    The copy and its signature are checked before it moves to its final path. Raises :class:`SubmissionError`
    if that path exists, :class:`Rejected` if the copy does not pass, OSError if it cannot be written.
    """
    source = folder_of(result)
    submitter = str(description["submitter"])
    org = root / submitter
    name = system.slug(str(description["system_name"]))
    if not name:
        raise SubmissionError("system_name: expected at least one letter or digit, found none")
    target = org / tree_of(record.division) / name / record.subject.workload / record.run_id
    if os.path.lexists(target):
        raise SubmissionError(f"{target} exists: a submission is never overwritten")
    root.mkdir(parents=True, exist_ok=True)
    # Within root, so that the last move is a rename; no submitter can have this name.
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=root) as incoming:
        copy = Path(incoming, *target.relative_to(root).parts)
        copy.mkdir(parents=True)
        for file in record.files:
            if key is not None and file == ATTESTATION:
                continue  # signed again
            shutil.copyfile(source / file, copy / file, follow_symlinks=False)
        (copy / SYSTEM).write_bytes(system.encode(description))
        registry = read_registry(root / "registry")
        if key is not None:
            (copy / ATTESTATION).write_bytes(attestation.sign_result(copy, record, submitter, registry, key))
        entry = check_entry(copy, Path(incoming), registry)
        if entry.rejected:
            raise Rejected(list(entry.findings))
        if entry.digest != record.digest:
            raise SubmissionError(f"{result}: run.jsonl changed while it was copied; nothing was packaged")
        target.parent.mkdir(parents=True, exist_ok=True)
        copy.rename(target)
    return replace(entry, folder=target)


def check_entry(
    folder: Path, root: Path, registry: Registry, verdict: Verdict | None = None
) -> CheckedSubmission:
    """Check one packaged result: log, system.json, their agreement with the folder, and the signature.

    ``verdict`` is the verdict on the log, if it was checked already. A ``folder`` equal to ``root`` is in no
    tree, so its names are not checked.
    """
    verdict = verdict or check_result(folder)
    findings = list(verdict.findings)
    description, faults = _read_system(folder)
    findings += faults
    record = verdict.record
    if record is not None and description is not None:
        findings += _agreement(record, description)
        findings += [
            finding("SUBM-004", f"{SYSTEM}, {fault.field}", fault.expected, fault.found)
            for fault in implausible(record, description)
        ]
    if record is not None:
        expected, found = file_difference(folder, record.files, record.header.data.get("baseline"))
        findings += [finding("SUBM-009", BASELINE, expected, found)] if expected else []
    if description is not None:
        findings += _folder(folder.relative_to(root).parts, description, record)
    entry = CheckedSubmission(
        folder,
        tuple(findings),
        record.digest if record else None,
        record.run_id if record else None,
        description,
        withdrawal=registry.withdrawals.get(verdict.digest or ""),
    )
    if record is None or description is None:
        return entry
    submitter, machine = str(description["submitter"]), system.slug(description["system_name"])
    attestation_findings, assurance = attestation.check_attestation(folder, record, submitter, registry)
    final = apply_waivers(
        [*findings, *attestation_findings], record.digest, registry.waivers, datetime.now(UTC)
    )
    entry = replace(entry, findings=final)
    accepted = not entry.rejected
    trace = trace_of(record, location_in(root, folder), submitter, machine, accepted=accepted)
    signed = assurance is not None and bool(assurance.signers)
    return replace(
        entry,
        assurance=None if entry.rejected or entry.withdrawal is not None else assurance,
        trace=replace(trace, signed=signed, rejected=entry.rejected),
    )


def _read_system(folder: Path) -> tuple[dict[str, Any] | None, list[Finding]]:
    try:
        value = system.parse(read_in(folder, SYSTEM, system.MAX_BYTES))
    except RecordError as error:
        defect = error.defects[0]
        return None, [finding("SUBM-003", SYSTEM, defect.expected, defect.found)]
    except system.SystemProblem as error:
        return None, [finding("SUBM-003", SYSTEM, "strict JSON", str(error))]
    wrong = system.defects(value)
    faults = [finding("SUBM-004", f"{SYSTEM}, {fault.field}", fault.expected, fault.found) for fault in wrong]
    return (None if wrong else value), faults


def _agreement(record: Record, description: Mapping[str, Any]) -> list[Finding]:
    """The system facts of the log must equal those of the description."""
    known, reasons = machine_facts(record)
    logged = {**known, **dict.fromkeys(reasons)}
    return [
        finding("SUBM-005", f"{SYSTEM}, {name}", repr(value), repr(description[name]))
        for name, value in logged.items()
        if description[name] != value
    ]


def _folder(parts: tuple[str, ...], description: Mapping[str, Any], record: Record | None) -> list[Finding]:
    expected = {
        "submitter": description["submitter"],
        "tree": tree_of(description["division"]),
        "system": system.slug(description["system_name"]),
    }
    if record is not None:
        expected |= {"workload": record.subject.workload, "run id": record.run_id}
    return [
        finding("SUBM-006", f"folder of the {what}", str(name), part)
        for part, (what, name) in zip(parts, expected.items(), strict=False)
        if part != name
    ]


def check_tree(root: Path, sandbox: Sandbox | None = None) -> tuple[list[CheckedSubmission], list[Finding]]:
    """Check everything under ``root``: each result, in a sandbox, and the tree as a whole.

    ``sandbox`` runs :data:`SUBMISSION_TASKS`; without one, a sandbox is started for each core. A submission
    over which the checker itself fails has a ``fault`` and neither findings nor an assurance level.
    """
    registry = read_registry(root / "registry")
    stray = [finding_of(fault) for fault in registry.faults]
    folders = list(_run_folders(root, stray))
    if sandbox is not None:
        entries = [_checked(sandbox, folder, root) for folder in folders]
    else:
        entries = in_sandboxes(SUBMISSION_TASKS, lambda child, folder: _checked(child, folder, root), folders)
    names = [(one.withdrawal, one.folder.name, one.folder.relative_to(root).parts[0]) for one in entries]
    stray += [finding_of(breach) for breach in without_result(registry, names)]
    entries, between = compared_with_each_other(entries, registry, root)
    return entries, stray + between


def compared_with_each_other(
    entries: list[CheckedSubmission], registry: Registry, root: Path
) -> tuple[list[CheckedSubmission], list[Finding]]:
    """The findings about several submissions together; a rejected one loses its assurance level.

    Raises :class:`TooManySubmissions` above :data:`MOST_CURVES`.
    """
    traces = [entry.trace for entry in entries if entry.trace is not None]
    curves = sum(len(repeats) for trace in traces for repeats in trace.curves)
    if curves > MOST_CURVES:
        raise TooManySubmissions(
            f"{safe(root)}: expected at most {MOST_CURVES} repeats in all submissions, counted once for each "
            f"rank, found {curves}: check the submitters' folders in several trees"
        )
    findings = [finding_of(breach) for breach in tree_breaches(traces, registry)]
    findings += duplicates(entries, registry, root)
    rejected = {found.location.partition(", ")[0] for found in findings if found.severity == "reject"}
    entries = [
        replace(one, assurance=None) if location_in(root, one.folder) in rejected else one for one in entries
    ]
    return entries, findings + hardware_differences(entries, root)


def _checked(sandbox: Sandbox, folder: Path, root: Path) -> CheckedSubmission:
    """Run :func:`check_entry` in the sandbox; one finding where the check exceeded a limit.

    A fault of the checker belongs to this submission only: no other verdict depends on it.
    """
    try:
        return CheckedSubmission.of_dict(folder, sandbox.run("entry", path=folder, root=root))
    except LimitsError as error:
        return CheckedSubmission(folder, (limit_finding(error),), None, None, None)
    except TaskError as error:
        return CheckedSubmission(
            folder, (), None, None, None, fault=f"{location_in(root, folder)}: {safe(error, _MAX_FAULT)}"
        )


def _run_folders(root: Path, stray: list[Finding]) -> Iterator[Path]:
    """The run folders, five levels down; anything outside of the layout is reported in ``stray``."""
    for org in folders_in(root, root, stray, ignored=_NOT_SUBMITTERS):
        if not system.SLUG.fullmatch(org.name):
            stray.append(_misnamed(org, root))
        for tree in folders_in(org, root, stray):
            if tree.name == SETS:  # suite.compare.submitted_sets checks them
                continue
            if tree.name not in TREES:
                known = ", ".join((*TREES, SETS))
                stray.append(finding("SUBM-001", location_in(root, tree), f"one of {known}", tree.name))
                continue
            for machine in folders_in(tree, root, stray):
                if not system.SLUG.fullmatch(machine.name):
                    stray.append(_misnamed(machine, root))
                for workload in folders_in(machine, root, stray):
                    yield from folders_in(workload, root, stray)


def folders_in(folder: Path, root: Path, stray: list[Finding], ignored: tuple[str, ...] = ()) -> list[Path]:
    """The folders inside ``folder``, by name; links and files are reported in ``stray``."""
    folders = []
    for child in sorted(folder.iterdir()):
        if child.name in ignored:
            continue
        if child.is_symlink() or not child.is_dir():
            stray.append(
                finding(
                    "SUBM-001",
                    location_in(root, child),
                    "a folder",
                    "a link" if child.is_symlink() else "a file",
                )
            )
        else:
            folders.append(child)
    return folders


def _misnamed(folder: Path, root: Path) -> Finding:
    return finding("SUBM-002", location_in(root, folder), system.SLUG.pattern, folder.name)
