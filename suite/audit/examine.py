"""The audit of one result: verdict, outcomes, level, digests and publishable sentence.

The functions run in the sandbox and therefore return JSON values; :func:`suite.audit.judgement.judged` calls
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.audit.outcomes import outcomes
from suite.audit.quote import QuoteError, fields_of
from suite.checker import check_result
from suite.checker.verdict import Verdict
from suite.log.canonical import sha256_hex
from suite.log.files import BASELINE, CHANGES, LOG, MAX_CHANGES, folder_of, read_file
from suite.log.finding import Finding, RecordError
from suite.log.model import Record
from suite.metrics.baseline import MAX_SHARED
from suite.rules import Rules, load
from suite.rules.root import LATEST
from suite.submissions import package as submission
from suite.submissions.registry import Registry
from suite.submissions.registry.read import WAIVERS, WITHDRAWALS
from suite.submissions.registry.traces import Trace, trace_of
from suite.submissions.registry.withdrawals import withdrawal_of
from suite.submissions.signing.dsse import MAX_ENVELOPE
from suite.submissions.signing.statement import ATTESTATION
from suite.submissions.system import MAX_BYTES

SYSTEM = "system.json"
AUDITED = "the audited result"  # its location in findings that compare it with submissions
_UNSIGNED = f"{ATTESTATION} beside {SYSTEM}, as `make submit … KEY=` writes them"
_CAPS = {SYSTEM: MAX_BYTES, CHANGES: MAX_CHANGES, BASELINE: MAX_SHARED, ATTESTATION: MAX_ENVELOPE}


def examine(path: Path, root: Path, registry: Registry, verdict: Verdict | None = None) -> dict[str, Any]:
    """Everything about the result in ``path`` that needs no other submission, as JSON values.

    ``root`` is the tree of submissions, whose folders a result in it must match. ``registry`` has its keys,
    nonces, waivers and withdrawals. ``verdict`` is the verdict on the log, if it was checked already.
    """
    verdict = verdict or check_result(path)
    value = verdict.as_dict()
    folder, record = folder_of(path), verdict.record
    described = record is not None and SYSTEM in record.files
    value |= {
        "format": "suite-verdict/1",
        "files": {} if record is None else dict(_digests(folder, record)),
        "policy": policy_of(load(verdict.rules or LATEST)),
        "described": described,
        "submitter": None,
        "level": "L0" if verdict.accepted else None,
        "missing": _UNSIGNED if verdict.accepted else "",
        "trace": None
        if record is None
        else trace_of(record, AUDITED, "", "", accepted=verdict.accepted).as_dict(),
        "inputs": {},
        "system": None,
    }
    if record is not None and described:
        value |= _packaged(folder, root, registry, verdict)
        value["inputs"] = dict(_inputs(folder, root, registry, record))
    findings = [Finding(**one) for one in value["findings"]]
    value["outcomes"] = [asdict(row) for row in outcomes(verdict, findings=findings)]
    withdrawal = withdrawal_of(folder, verdict.digest, registry)
    value["withdrawal"] = None if withdrawal is None else asdict(withdrawal)
    if withdrawal is not None:
        value |= {"scored": False, "level": None, "missing": ""}
        return value | {"quote": None, "why_no_quote": f"the result is {withdrawal}"}
    unread = [one for one in registry.faults if one.location.startswith(f"registry, {WITHDRAWALS}.json")]
    if unread:
        why = f"whether the result is withdrawn is unknown: {unread[0].location}: {unread[0].found}"
        return value | {"quote": None, "why_no_quote": why}
    return value | _quote(value, record)


def _packaged(folder: Path, root: Path, registry: Registry, verdict: Verdict) -> dict[str, Any]:
    """The values that change with system.json: findings of more rules, signature, level."""
    inside = folder.resolve().is_relative_to(root.resolve())
    base = root.resolve() if inside else folder.resolve()
    entry = submission.check_entry(folder.resolve(), base, registry, verdict)
    assurance = entry.assurance
    found = _totals(entry.findings, verdict.record) | {
        "level": None if assurance is None else assurance.level,
        "missing": "" if assurance is None else assurance.missing,
    }
    if entry.system is not None:
        found["system"] = str(entry.system["system_name"])
        found["submitter"] = str(entry.system["submitter"])
    if entry.trace is not None:
        found["trace"] = Trace.of_dict({**entry.trace.as_dict(), "location": AUDITED}).as_dict()
    return found


def _totals(findings: Sequence[Finding], record: Record | None) -> dict[str, Any]:
    """The part of a verdict that follows from all ``findings``."""
    rejections = sum(one.severity == "reject" for one in findings)
    return {
        "findings": [asdict(one) for one in findings],
        "rejections": rejections,
        "flags": sum(one.severity == "flag" for one in findings),
        "accepted": not rejections,
        "scored": not rejections and record is not None and record.completed,
    }


def _digests(folder: Path, record: Record) -> Iterator[tuple[str, str]]:
    """The SHA-256 of the judged log, and of the readable files beside it."""
    yield LOG, record.digest
    for name in (SYSTEM, CHANGES, BASELINE):
        if name in record.files and (found := _sha256(folder, name)) is not None:
            yield name, found


def _inputs(folder: Path, root: Path, registry: Registry, record: Record) -> Iterator[tuple[str, str]]:
    """The attestations that were judged: the submitter's, and the waivers that apply to this log."""
    if ATTESTATION in record.files and (found := _sha256(folder, ATTESTATION)) is not None:
        yield ATTESTATION, found
    now = datetime.now(UTC)
    for waiver in registry.waivers:
        if waiver.run == record.digest and now <= waiver.until:
            found = _sha256(root / "registry" / WAIVERS, waiver.name)
            if found is not None:
                yield f"registry/{WAIVERS}/{waiver.name}", found


def _sha256(folder: Path, name: str) -> str | None:
    """The SHA-256 of a file; None where it cannot be read, which a finding reports."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return sha256_hex(read_file(descriptor, name, _CAPS.get(name, MAX_ENVELOPE)))
    except RecordError:
        return None
    finally:
        os.close(descriptor)


def policy_of(rules: Rules) -> dict[str, str]:
    """The version of the applied rules, and the digest of all their files."""
    stamp = rules.stamp()
    return {"version": stamp["version"], "digest": stamp["digest"]}


def _quote(value: Mapping[str, Any], record: Record | None) -> dict[str, Any]:
    """The fields of the publishable sentence, or the reason why there is none."""
    if record is None or not value["accepted"]:
        return {"quote": None, "why_no_quote": "the result is rejected, and nothing of it is published"}
    if not value["scored"]:
        return {"quote": None, "why_no_quote": f"the run has no score: {value['reached']}"}
    try:
        return {"quote": fields_of(record, value["level"], value["system"]), "why_no_quote": None}
    except QuoteError as error:
        return {"quote": None, "why_no_quote": str(error)}
