"""The checker's task for the sandbox, and what every task that reads a log needs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from suite.checker.verdict import check_result, prepare
from suite.rules import MalformedRules
from suite.sandbox.tasks import Tasks

# jsonschema explains what a value breaks, which is rare: it is imported where that is needed.
_JSONSCHEMA = frozenset(
    ("jsonschema", "jsonschema_specifications", "referencing", "rpds", "attr", "attrs", "typing_extensions")
)


def check(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``."""
    return check_result(Path(path)).as_dict()


def log_tasks(functions: Mapping[str, Callable[..., Any]]) -> Tasks:
    """Tasks that read logs: the checker is prepared, and malformed rules concern every result."""
    return Tasks(functions, prepare, _JSONSCHEMA, (MalformedRules,))


TASKS = log_tasks({"check": check})
