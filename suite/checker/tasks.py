"""The checker's task for the sandbox, and the settings of every task that reads a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from suite.checker.verdict import check_result, prepare
from suite.rules import MalformedRules
from suite.sandbox.tasks import Tasks

# jsonschema only explains violations, which are rare: it is imported late.
_JSONSCHEMA = frozenset(
    ("jsonschema", "jsonschema_specifications", "referencing", "rpds", "attr", "attrs", "typing_extensions")
)


def check(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``."""
    return check_result(Path(path)).as_dict()


def log_tasks(functions: Mapping[str, Callable[..., Any]]) -> Tasks:
    """Declare tasks that read logs: they need the rule functions, and MalformedRules ends the command."""
    return Tasks(functions, prepare, _JSONSCHEMA, (MalformedRules,))


TASKS = log_tasks({"check": check})
