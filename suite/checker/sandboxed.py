"""Checks in the sandbox: the verdict that it returns, and the verdict if a limit ended the check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.log.finding import Finding
from suite.log.safe import safe
from suite.sandbox.sandbox import LimitsError, Sandbox

CHECK_TASKS = "suite.checker.tasks"


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    """A verdict returned by the sandbox: :class:`suite.checker.verdict.Verdict` without the record."""

    name: str
    findings: tuple[Finding, ...]
    accepted: bool
    scored: bool
    reached: str
    value: dict[str, Any]

    @classmethod
    def of_dict(cls, value: dict[str, Any]) -> VerdictSummary:
        """The verdict whose ``Verdict.as_dict`` is ``value``."""
        findings = tuple(Finding(**found) for found in value["findings"])
        return cls(value["result"], findings, value["accepted"], value["scored"], value["reached"], value)

    @property
    def rules(self) -> str | None:
        """The rules version that was applied; None for a log without a known one."""
        version: str | None = self.value["rules"]
        return version

    @property
    def rejections(self) -> tuple[Finding, ...]:
        """The findings that reject."""
        return tuple(found for found in self.findings if found.severity == "reject")

    @property
    def flags(self) -> tuple[Finding, ...]:
        """The findings for an auditor to look at."""
        return tuple(found for found in self.findings if found.severity == "flag")

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return self.value


def check_in(sandbox: Sandbox, path: Path) -> VerdictSummary:
    """The verdict on the result in ``path``; LOG-019 rejects a result if a limit ended its check."""
    try:
        return VerdictSummary.of_dict(sandbox.run("check", path=path))
    except LimitsError as error:
        return VerdictSummary.of_dict(ended_verdict(path, limit_finding(error)))


def limit_finding(error: LimitsError) -> Finding:
    """The finding of LOG-019: a limit ended a check."""
    from suite.rules import load
    from suite.rules.root import LATEST

    rule = load(LATEST).checks["LOG-019"]
    return Finding(
        "LOG-019", rule.severity, "the whole result", "a check within the limits", str(error), rule.fix
    )


def ended_verdict(path: Path, found: Finding) -> dict[str, Any]:
    """The verdict, as JSON values, on a result whose check was ended by a limit."""
    return {
        "result": safe(path.name),
        "run_id": None,
        "accepted": False,
        "scored": False,
        "reached": "the check was ended",
        "rules": None,
        "sha256": None,
        "rejections": 1,
        "flags": 0,
        "findings": [asdict(found)],
    }
