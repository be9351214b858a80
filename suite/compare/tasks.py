"""The tasks of comparisons and summaries for the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.compare.comparable import comparable
from suite.compare.result_row import row_of


def compare(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``, and its comparison data."""
    return comparable(Path(path))


def row(path: str) -> dict[str, Any]:
    """The result in ``path`` as a row of a summary."""
    return row_of(Path(path)).as_dict()


TASKS = log_tasks({"compare": compare, "row": row})
