"""Rules in the pages: every id that a page names exists, and every rule is named where people look for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suite.report.submission_rules import rules
from suite.rules import LATEST, load
from suite.rules.places import lineage

ROOT = Path(__file__).resolve().parents[2]
RULES = [f"rules/{version}" for version in lineage(LATEST)]
FOR_PEOPLE = (
    "docs/gaming.md", "docs/threat-model.md", "docs/submitting.md",
    *(f"{folder}/PUBLISHING.md" for folder in RULES if (ROOT / folder / "PUBLISHING.md").exists()),
)  # fmt: skip
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
)
_ID = re.compile(r"\b([A-Z]{2,5})-([0-9]{3})\b(?: to ([A-Z]{2,5})-([0-9]{3})\b)?")
_NO_RULE = "SHA-256"
KNOWN = set(load(LATEST).checks) | set(rules())


def named(text: str) -> set[str]:
    """The ids in ``text``; "DIV-001 to DIV-003" names three."""
    found = set()
    for area, first, other, last in _ID.findall(text):
        assert other in ("", area), f"{area}-{first} to {other}-{last} is no range"
        found |= {f"{area}-{number:03}" for number in range(int(first), int(last or first) + 1)}
    return found - {_NO_RULE}


def test_a_range_names_what_lies_in_it() -> None:
    assert named("DIV-001 to DIV-003, LOG-001 and SHA-256") == {"DIV-001", "DIV-002", "DIV-003", "LOG-001"}


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_that_a_page_names_exists(page: str) -> None:
    assert named((ROOT / page).read_text()) - KNOWN == set()


def test_every_rule_is_named_for_people() -> None:
    """Beside RULES.md, which lists them: by what gaming, hostile input, signing or publishing it is for."""
    found = set[str]().union(*(named((ROOT / page).read_text()) for page in FOR_PEOPLE))
    assert KNOWN - found == set()


def test_rules_of_submissions_stand_with_their_severity() -> None:
    pages = "".join((ROOT / page).read_text() for page in ("docs/submitting.md", "submissions/README.md"))
    for name, row in rules().items():
        assert f"| {name} | {row['severity']} | " in pages
