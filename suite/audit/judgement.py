"""The whole judgement of one result: the child's, and what only shows beside all other submissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.audit.examine import HERE
from suite.audit.outcomes import NOT_APPLICABLE, NOT_TRIED, Outcome, of_rules
from suite.judge.parent import Judge, LimitsError, beyond, ended
from suite.record.finding import Finding
from suite.registry import read_registry
from suite.registry.traces import Trace, across
from suite.report import submission
from suite.report.submission_rules import finding, rules
from suite.rules import load
from suite.rules.places import NEWEST
from suite.signing.statement import ATTESTATION

_ALONE = "the result has no system.json: it is laid out by `make submit`"
_NO_LOG = "the log cannot be judged"
# Rules over all submissions that speak of a tree and not of one result in it.
_OF_TREE = ("SUBM-001", "SUBM-002", "SUBM-007", "SUBM-008", "REG-001", "REG-009")
_TREE_ALONE = "about the tree of submissions: `make check-submissions`"
_OF_NONCE = ("REG-002", "REG-003", "REG-004", "REG-005", "REG-013")
# What across() finds without a description of the result.
_BESIDE_ALL = ("REG-003", "REG-007", "REG-008", "REG-012")
_OF_LOG = (*_BESIDE_ALL, "SUBM-009")  # rules that need none


def judged(judge: Judge, path: Path, root: Path) -> dict[str, Any]:
    """The verdict on ``path`` as JSON values: ``verdict.json``. ``root`` is the tree of submissions.

    A check that broke a limit is rejected by LOG-019; JudgeError is a fault of the checker itself.
    """
    question = {"ask": "audit", "path": str(path.absolute()), "root": str(root.absolute())}
    try:
        value: dict[str, Any] = judge.ask(question)
    except LimitsError as error:
        return _beyond_limits(path, str(error))
    trace = value.pop("trace")
    shared = [] if trace is None else _shared(judge, Trace.of_dict(trace), value, root)
    _add(value, shared)
    nonce = trace is not None and trace["nonce"] is not None
    value["outcomes_of_submission"] = [asdict(row) for row in _submission_rows(value, nonce)]
    return value


def _beyond_limits(path: Path, why: str) -> dict[str, Any]:
    found = beyond(why)
    value = ended(path, found)
    checks = load(NEWEST).checks
    rows = of_rules(checks, [found], dict.fromkeys(checks, (NOT_TRIED, "the check was ended by a limit")))
    stamp = load(NEWEST).stamp()
    return value | {
        "format": "suite-verdict/1",
        "files": {},
        "policy": {"version": stamp["version"], "digest": stamp["digest"]},
        "outcomes": [asdict(row) for row in rows],
        "outcomes_of_submission": [asdict(Outcome(rule, NOT_TRIED, _NO_LOG)) for rule in rules()],
        "described": False,
        "submitter": None,
        "system": None,
        "level": None,
        "missing": "",
        "inputs": {},
        "quote": None,
        "why_no_quote": "the result is rejected, and nothing of it is published",
    }


def _shared(judge: Judge, trace: Trace, value: Mapping[str, Any], root: Path) -> list[Finding]:
    """Findings about this result beside all others: copies, nonces, busy devices, attempts."""
    if not root.is_dir():
        return []
    entries = submission.whole_tree(root, judge)
    others = [one.trace for one in entries if one.trace is not None and one.digest != value["sha256"]]
    faults = across([*others, trace], read_registry(root / "registry"))
    return [
        finding(*fault)
        for fault in faults
        if (HERE in fault.place or HERE in fault.expected or HERE in fault.actual)
        and (value["described"] or fault.rule in _BESIDE_ALL)
    ]


def _add(value: dict[str, Any], found: Iterable[Finding]) -> None:
    """Add findings to a verdict, and take away what a rejection takes away."""
    for one in found:
        value["findings"].append(one.as_dict())
        value["rejections"] += one.severity == "reject"
        value["flags"] += one.severity == "flag"
    if value["rejections"]:
        value |= {"accepted": False, "scored": False, "level": None, "missing": "", "quote": None}
        value["why_no_quote"] = "the result is rejected, and nothing of it is published"


def _submission_rows(value: Mapping[str, Any], nonce: bool) -> list[Outcome]:
    """The outcomes of the rules about description, signature and registry."""
    without: dict[str, tuple[str, str]] = {}
    if not nonce:
        without |= dict.fromkeys(_OF_NONCE, (NOT_APPLICABLE, "the run has no nonce"))
    signs = [rule for rule in rules() if rule.startswith("SIGN-")]
    if ATTESTATION not in value["inputs"]:
        without |= dict.fromkeys(signs, (NOT_APPLICABLE, "the result is not signed"))
    if not value["described"]:
        alone = [rule for rule in rules() if rule not in _OF_LOG]
        without |= dict.fromkeys(alone, (NOT_TRIED, _ALONE))
    without |= dict.fromkeys(_OF_TREE, (NOT_TRIED, _TREE_ALONE))
    if value["run_id"] is None:
        without = dict.fromkeys(rules(), (NOT_TRIED, _NO_LOG))
    return of_rules(rules(), [Finding(**one) for one in value["findings"]], without)
