"""The sandbox task of the site: what its pages show of one result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.compare.tasks import TASKS as COMPARE
from suite.site.facts import facts_of
from suite.submissions.tasks import registry_of


def facts(path: str, root: str) -> dict[str, Any]:
    """What the pages show of the result in ``path``; ``root`` is the folder that the site is made from."""
    return facts_of(Path(path), Path(root), registry_of(Path(root)))


TASKS = log_tasks({**COMPARE.functions, "facts": facts})
