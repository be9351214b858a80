"""The rules of the tree of submissions, as data; the rules of a single log are in checks.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from suite.log.finding import Finding
from suite.rules.root import LATEST, SHIPPED
from suite.submissions.registry.model import Breach


@cache
def rules() -> Mapping[str, Mapping[str, str]]:
    """The rules of the tree by id: severity, title, fix."""
    table: dict[str, dict[str, str]] = json.loads(SHIPPED.files(LATEST)["submission"].read_text("utf-8"))
    return table


def finding(rule: str, location: str, expected: str, actual: str, severity: str | None = None) -> Finding:
    """A finding of one of :func:`rules`, of the rule's severity if no other is given."""
    severity = severity or rules()[rule]["severity"]
    return Finding(rule, severity, location, expected, actual, rules()[rule]["fix"])


def finding_of(breach: Breach) -> Finding:
    """The finding that reports ``breach``."""
    return finding(breach.rule, breach.location, breach.expected, breach.found, breach.severity)
