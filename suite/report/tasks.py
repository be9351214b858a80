"""The task of summaries for the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.report.summary import row_of


def row(path: str) -> dict[str, Any]:
    """The result in ``path`` as a row of a summary."""
    return row_of(Path(path)).as_dict()


TASKS = log_tasks({"row": row})
