"""The rules of the tree of submissions, as data; the rules of a single log are in checks.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from suite.log.finding import Finding
from suite.rules.root import LATEST, SHIPPED


@cache
def rules() -> Mapping[str, Mapping[str, str]]:
    """The rules of the tree by id: severity, title, fix."""
    table: dict[str, dict[str, str]] = json.loads(SHIPPED.files(LATEST)["submission"].read_text("utf-8"))
    return table


def finding(rule: str, location: str, expected: str, actual: str) -> Finding:
    """A finding of one of :func:`rules`."""
    return Finding(rule, rules()[rule]["severity"], location, expected, actual, rules()[rule]["fix"])
