"""The tables of rules in the documents follow from the rule files; a new rule needs three additions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suite.checker.context import RULE_FUNCTIONS
from suite.checker.verdict import prepare
from suite.compare.scaling import rules as set_rules
from suite.rules import LATEST, load
from suite.submissions.rule_table import rules
from tools import rule_tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", rule_tables.PAGES)
def test_rule_tables_are_current(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert rule_tables.page(text) == text, "python -m tools.rule_tables writes them"


def test_every_rule_is_in_one_table() -> None:
    text = "".join((ROOT / name).read_text("utf-8") for name in rule_tables.PAGES)
    rows = {(check.id, check.severity, check.title) for check in load(LATEST).checks.values()}
    rows |= {(name, row["severity"], row["title"]) for name, row in {**rules(), **set_rules()}.items()}
    for row in rows:
        assert text.count(f"| {row[0]} | {row[1]} | {row[2]} |\n") == 1


def test_page_without_generated_table_raises() -> None:
    with pytest.raises(ValueError, match="found none"):
        rule_tables.page("| ID-001 | reject | by hand |\n")


def test_rules_of_an_area_are_in_one_module() -> None:
    """Fewer than 400 lines each; two areas may share a module."""
    prepare()
    modules: dict[str, set[str]] = {}
    for name, one in RULE_FUNCTIONS.items():
        modules.setdefault(rule_tables.area(name), set()).add(one.check.__module__)
    assert {area for area, found in modules.items() if len(found) > 1} == set()
    for path in (ROOT / "suite" / "checker").glob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) < 400, path.name


# A rule is a function, an entry and a forgery; the tables follow from the entry.
FUNCTION = '''

@header_rule("ID-900")
def lucky_attempt(c: HeaderContext) -> Iterator[Fault]:
    """The attempt is not the thirteenth."""
    if c.header["attempt"] == 13:
        yield Fault("header, data.attempt", "any other number", "13")
'''
ENTRY = {"severity": "reject", "title": "The attempt is not the thirteenth", "fix": "Try once more."}
FORGERY = """
TABLE.append(Forged("ID-900", put("header", "attempt", 13)))
"""


@pytest.mark.slow
def test_new_rule_needs_only_function_entry_and_forgery(tmp_path: Path) -> None:
    """In a copy of the project, the checker applies the new rule, and its forgery breaks only this rule."""
    for name in ("suite", "rules", "tools", "docs", "submissions", "tests/fixtures", "tests/unit"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.tmp"))
    for name in ("pyproject.toml", "tests/conftest.py", "tests/starts.py"):
        shutil.copy(ROOT / name, tmp_path / name)

    with (tmp_path / "suite/checker/identity.py").open("a") as file:
        file.write(FUNCTION)
    checks = tmp_path / "rules" / LATEST / "checks.json"
    checks.write_text(json.dumps({**json.loads(checks.read_text()), "ID-900": ENTRY}, indent=2))
    with (tmp_path / "tests/fixtures/forged_table.py").open("a") as file:
        file.write(FORGERY)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("tools.rule_tables")
    assert "| ID-900 | reject | The attempt is not the thirteenth |" in (
        tmp_path / "rules" / LATEST / "RULES.md"
    ).read_text("utf-8")
    chosen = "ID-900 or every_rule or honest_log_has_no_finding or tables_are_current or area_are_in_one"
    tests = ("tests/unit/test_forged.py", "tests/unit/test_rule_tables.py", "tests/unit/test_rule_ids.py")
    printed = run("pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *tests)
    assert "passed" in printed
    assert "failed" not in printed
