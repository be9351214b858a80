"""The sandbox tasks for MLPerf's logs: export a result, examine published logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.mllog import examine as published
from suite.mllog import export as translation


def export(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``, and its lines for each repeat."""
    return translation.export(Path(path))


def examine(path: str, requested_round: str) -> dict[str, Any]:
    """The outcomes of all checks of the logs in ``path`` under ``requested_round``."""
    return published.examine(Path(path), requested_round)


TASKS = log_tasks({"export": export, "examine": examine})
