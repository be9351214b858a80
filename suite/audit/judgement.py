"""The judgement of one result: the audit in the sandbox, and comparisons with all other submissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from suite.audit.examine import AUDITED, policy_of
from suite.audit.outcomes import NOT_APPLICABLE, NOT_TRIED, RuleOutcome, of_rules
from suite.checker.sandboxed import ended_verdict, limit_finding
from suite.log.finding import Finding
from suite.rules import load
from suite.rules.root import LATEST
from suite.sandbox.sandbox import LimitsError, Sandbox
from suite.submissions import package as submission
from suite.submissions.registry import read_registry
from suite.submissions.registry.comparison import tree_breaches
from suite.submissions.registry.traces import Trace
from suite.submissions.rule_table import finding_of, rules
from suite.submissions.signing.statement import ATTESTATION

AUDIT_TASKS = "suite.audit.tasks"
_ALONE = "the result has no system.json: `make submit` packages it"
_NO_LOG = "the log cannot be judged"
# Rules about the tree of submissions, not about one result in it.
_OF_TREE = ("SUBM-001", "SUBM-002", "SUBM-007", "SUBM-008", "REG-001", "REG-009")
_TREE_ALONE = "about the tree of submissions: `make check-submissions`"
_OF_NONCE = ("REG-002", "REG-003", "REG-004", "REG-005", "REG-013")
# What tree_breaches() finds without a description of the result.
_BESIDE_ALL = ("REG-003", "REG-007", "REG-008", "REG-012")


def judged(sandbox: Sandbox, path: Path, root: Path) -> dict[str, Any]:
    """The verdict on ``path`` as JSON values: ``verdict.json``. ``root`` is the tree of submissions.

    The sandbox has :data:`AUDIT_TASKS`. LOG-019 rejects the result if a limit ended its check. A SandboxError
    is a fault of the checker. Such a fault over another submission is listed under "not_compared": nobody can
    stop the audit of others' results with a submission.
    """
    try:
        value: dict[str, Any] = sandbox.run("audit", path=path, root=root)
    except LimitsError as error:
        return _ended(path, error)
    trace = value.pop("trace")
    value["not_compared"] = []
    if trace is not None and root.is_dir():
        entries, _ = submission.check_tree(root, sandbox)
        value["not_compared"] = [one.fault for one in entries if one.fault is not None]
        _add(value, _findings_beside_others(entries, Trace.of_dict(trace), value, root))
    nonce = trace is not None and trace["nonce"] is not None
    value["outcomes_of_submission"] = [asdict(row) for row in _submission_rows(value, nonce)]
    return value


def _ended(path: Path, error: LimitsError) -> dict[str, Any]:
    found = limit_finding(error)
    value = ended_verdict(path, found)
    rules_in_use = load(LATEST)
    checks = rules_in_use.checks
    rows = of_rules(checks, [found], dict.fromkeys(checks, (NOT_TRIED, "the check was ended by a limit")))
    return value | {
        "format": "suite-verdict/1",
        "files": {},
        "policy": policy_of(rules_in_use),
        "outcomes": [asdict(row) for row in rows],
        "outcomes_of_submission": [asdict(RuleOutcome(rule, NOT_TRIED, _NO_LOG)) for rule in rules()],
        "described": False,
        "submitter": None,
        "system": None,
        "level": None,
        "missing": "",
        "inputs": {},
        "not_compared": [],
        "withdrawal": None,
        "quote": None,
        "why_no_quote": "the result is rejected, and nothing of it is published",
    }


def _findings_beside_others(
    entries: Iterable[submission.CheckedSubmission], trace: Trace, value: Mapping[str, Any], root: Path
) -> list[Finding]:
    """Findings about this result and others together: copies, nonces, busy devices, attempts."""
    others = [one.trace for one in entries if one.trace is not None and one.digest != value["sha256"]]
    faults = tree_breaches([*others, trace], read_registry(root / "registry"))
    found = [
        finding_of(fault)
        for fault in faults
        if (AUDITED in fault.location or AUDITED in fault.expected or AUDITED in fault.found)
        and (value["described"] or fault.rule in _BESIDE_ALL)
    ]
    # What rejects a copy of this result is information about it.
    of_this = [one.location.partition(", ")[0] == AUDITED or one.severity != "reject" for one in found]
    return [one if this else replace(one, severity="info") for one, this in zip(found, of_this, strict=True)]


def _add(value: dict[str, Any], found: Iterable[Finding]) -> None:
    """Add findings to a verdict, and remove level and sentence if one rejects."""
    for one in found:
        value["findings"].append(asdict(one))
        value["rejections"] += one.severity == "reject"
        value["flags"] += one.severity == "flag"
    if value["rejections"]:
        value |= {"accepted": False, "scored": False, "level": None, "missing": "", "quote": None}
    if value["rejections"] and value["withdrawal"] is None:
        value["why_no_quote"] = "the result is rejected, and nothing of it is published"


def _submission_rows(value: Mapping[str, Any], nonce: bool) -> list[RuleOutcome]:
    """The outcomes of the rules about description, signature and registry."""
    without: dict[str, tuple[str, str]] = {}
    if not nonce:
        without |= dict.fromkeys(_OF_NONCE, (NOT_APPLICABLE, "the run has no nonce"))
    signs = [rule for rule in rules() if rule.startswith("SIGN-")]
    if ATTESTATION not in value["inputs"]:
        without |= dict.fromkeys(signs, (NOT_APPLICABLE, "the result is not signed"))
    if not value["described"]:
        alone = [rule for rule in rules() if rule not in _BESIDE_ALL]
        without |= dict.fromkeys(alone, (NOT_TRIED, _ALONE))
    without |= dict.fromkeys(_OF_TREE, (NOT_TRIED, _TREE_ALONE))
    if value["run_id"] is None:
        without = dict.fromkeys(rules(), (NOT_TRIED, _NO_LOG))
    return of_rules(rules(), [Finding(**one) for one in value["findings"]], without)
