"""The audit's task for the sandbox, and those of submissions, because an audit reads all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.audit.examine import examine
from suite.checker.tasks import log_tasks
from suite.submissions import tasks as submissions


def audit(path: str, root: str) -> dict[str, Any]:
    """Everything about the result in ``path`` that needs no other submission in ``root``."""
    return examine(Path(path), Path(root), submissions.registry_of(Path(root)))


TASKS = log_tasks({**submissions.TASKS.functions, "audit": audit})
