"""The sandbox tasks of submissions: check one packaged result, and the tasks of the checker."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from suite.checker import tasks as checker
from suite.submissions.package import check_entry
from suite.submissions.registry import Registry, read_registry


@cache
def registry_of(root: Path) -> Registry:
    """The registry of the submissions in ``root``, read once per sandbox process."""
    return read_registry(root / "registry")


def entry(path: str, root: str) -> dict[str, Any]:
    """Check the packaged result in ``path`` with the registry in ``root``."""
    return check_entry(Path(path), Path(root), registry_of(Path(root))).as_dict()


TASKS = checker.log_tasks({**checker.TASKS.functions, "entry": entry})
