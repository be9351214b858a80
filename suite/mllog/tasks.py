"""The tasks of MLPerf's logs for the sandbox: writing them from a result, and examining published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.mllog import examine as published
from suite.mllog import export as translation


def export(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``, and its lines for each repeat."""
    return translation.export(Path(path))


def examine(path: str, asked: str) -> dict[str, Any]:
    """What can be verified of the logs in ``path`` under the round ``asked``."""
    return published.examine(Path(path), asked)


TASKS = log_tasks({"export": export, "examine": examine})
