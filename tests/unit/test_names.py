"""A module binds each name once: a second constant of a name silently replaces the first."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path for room in ("suite", "tests", "peers", "tools") for path in (ROOT / room).rglob("*.py")
)


def bound_twice(source: str) -> set[str]:
    """Names that more than one statement at the top of a module binds."""
    names: list[str] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names += [] if statement.decorator_list else [statement.name]  # a decorator may add to the first
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names += [node.id for node in targets if isinstance(node, ast.Name)]
    return {name for name, count in Counter(names).items() if count > 1}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_binds_each_name_once(path: Path) -> None:
    assert bound_twice(path.read_text()) == set()


def test_bound_twice_finds_a_second_constant() -> None:
    assert bound_twice("_LARGE = 1\n_TOGETHER = 2\n_LARGE: int = 3\n") == {"_LARGE"}
