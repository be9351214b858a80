"""The task of comparisons for the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.compare.comparable import comparable


def compare(path: str) -> dict[str, Any]:
    """The verdict on the result in ``path``, and what a comparison needs of it."""
    return comparable(Path(path))


TASKS = log_tasks({"compare": compare})
