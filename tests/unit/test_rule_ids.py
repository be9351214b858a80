"""Every rule id in a page exists. The tables are generated (tools/rule_tables.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suite.compare.scaling import rules as set_rules
from suite.rules import LATEST, SHIPPED, load
from suite.submissions.rule_table import rules

ROOT = Path(__file__).resolve().parents[2]
RULES = [f"rules/{version}" for version in SHIPPED.lineage(LATEST)]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/*.md",
        *(f"{folder}/**/*.md" for folder in RULES),
        "rules/practice/*.md",
        "submissions/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "adding-a-rule.md"  # its ids are examples that no rule has
)
_ID = re.compile(r"\b([A-Z]{2,5})-([0-9]{3})\b(?: to ([A-Z]{2,5})-([0-9]{3})\b)?")
_NO_RULE = "SHA-256"
KNOWN = set(load(LATEST).checks) | set(rules()) | set(set_rules())


def named(text: str) -> set[str]:
    """The ids in ``text``; "DIV-001 to DIV-003" names three."""
    found = set()
    for area, first, other, last in _ID.findall(text):
        assert other in ("", area), f"{area}-{first} to {other}-{last} is no range"
        found |= {f"{area}-{number:03}" for number in range(int(first), int(last or first) + 1)}
    return found - {_NO_RULE}


def test_range_of_rule_ids_includes_every_id_in_it() -> None:
    assert named("DIV-001 to DIV-003, LOG-001 and SHA-256") == {"DIV-001", "DIV-002", "DIV-003", "LOG-001"}


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_id_in_a_page_exists(page: str) -> None:
    assert named((ROOT / page).read_text()) - KNOWN == set()
