"""The tasks of submissions for the sandbox: checking one packaged result, and the checker's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from suite.checker import tasks as checker
from suite.submissions.package import check_entry
from suite.submissions.registry import Registry, read_registry


@cache
def registry_of(root: Path) -> Registry:
    """The registry of the submissions in ``root``: read once a child, whatever is done to it meanwhile."""
    return read_registry(root / "registry")


def entry(path: str, root: str) -> dict[str, Any]:
    """The packaged result in ``path`` after checking, beside the registry in ``root``."""
    return check_entry(Path(path), Path(root), registry_of(Path(root))).as_dict()


TASKS = checker.log_tasks({**checker.TASKS.functions, "entry": entry})
